"""Leases, manifests and Wait-Die (KLIS). Pure state machines; nothing here reads a clock or creates an id.

A manifest declares triples (agent, predicate, resource). The kernel compares them with the leases in force and
returns Granted, Wait or Die; the ledger is the fold of every verdict and of every lease's end. Nothing in this package
reads a clock or makes an id.
"""
