"""Realms that a server has: the HTTP client, and ``RemoteRealm``."""
