"""Programs for other implementations of the specifications: vectors, lease scenarios and sessions, calls as texts.

Developer tooling beside the product; it is not in the wheel, and no package of the product imports it.
"""
