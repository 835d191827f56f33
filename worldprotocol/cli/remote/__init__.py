"""``worldctl`` on a realm that a server has: the client, and the execution of a command in the server."""
