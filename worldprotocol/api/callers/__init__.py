"""Callers of a realm: their rights and tokens, and submissions that they may repeat."""
