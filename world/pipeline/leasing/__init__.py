"""Leases of proposals: manifests, required existence, settings and confirmed time."""
