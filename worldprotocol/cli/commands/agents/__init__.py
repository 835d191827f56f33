"""Commands for agents under a realm."""
