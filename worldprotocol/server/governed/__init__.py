"""Calls of tools over HTTP: hooks of coding agents ask here, and wait without a thread."""
