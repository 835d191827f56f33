"""Commands that work with policies."""
