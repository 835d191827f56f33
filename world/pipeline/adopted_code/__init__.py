"""Comparison of a program with the adopted policies and domain, and the proposals that are held meanwhile."""
