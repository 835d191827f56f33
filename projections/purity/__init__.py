"""Purity of projections: checks of their source and guards while they run."""
