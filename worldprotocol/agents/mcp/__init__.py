"""The MCP server: the actions of a realm as tools, its worlds, inbox and leases as resources.

``serving`` makes the server of the official SDK; ``realm_access`` is what it needs of a realm, which ``local_realm``
takes from a log on this machine and ``api_realm`` from the operations of a server.
"""
