"""Preparation of commands: calls of foreign code before the log's lock is taken."""
