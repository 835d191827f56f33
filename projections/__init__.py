"""Projections: from what happened outside to an intent. They read a snapshot and never change a world."""
