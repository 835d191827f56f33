"""Launcher of confined commands: scripts that run in a process of their own, without this package on the path."""
