"""Policies and their rules: Python, policy files and Cedar."""
