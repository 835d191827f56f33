"""Commands that prove and repair a log."""
