"""Purity of projections: guards of their calls."""
