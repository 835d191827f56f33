"""Secrets in recorded values: references, and literals that must not be recorded."""
