"""Connections of the server: HTTP/1.1 with limits of size and time, and streams of events."""
