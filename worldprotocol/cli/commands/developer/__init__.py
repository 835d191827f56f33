"""Commands that developers use."""
