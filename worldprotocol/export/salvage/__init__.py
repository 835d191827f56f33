"""Salvage: what is left of a damaged log, and what of it is proven."""
