"""MCP servers under a realm: a proxy that judges each call of a tool before it forwards it (``worldctl mcp proxy``)."""
