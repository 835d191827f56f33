"""Traces and metrics of a server."""
