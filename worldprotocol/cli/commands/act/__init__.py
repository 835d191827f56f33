"""Commands that act on a realm."""
