"""Resources of leases: names, their comparison and their normal form."""
