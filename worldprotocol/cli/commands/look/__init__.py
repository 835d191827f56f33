"""Commands that look at a realm."""
