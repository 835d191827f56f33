"""Expressions of a domain: syntax, scope and functions."""
