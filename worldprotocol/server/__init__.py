"""HTTP server: sign-in, rights and operations on realms (docs/server.md)."""
