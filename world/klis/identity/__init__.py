"""Identity of agents: registration, keys, signatures and authentication."""
