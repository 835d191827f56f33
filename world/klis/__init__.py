"""KLIS: leases on resources for concurrent agents, as pure state machines.

A manifest declares triples (agent, predicate, resource). The kernel compares them with the leases in force and
returns Granted, Wait or Die; the ledger is the fold of every verdict and of every lease's end. Nothing in this package
reads a clock or makes an id.
"""
