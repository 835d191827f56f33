"""Commands that hold leases."""
