"""Calls of tools in simulations, whose callers leave."""
