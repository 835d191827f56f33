"""Commands that administer a realm."""
