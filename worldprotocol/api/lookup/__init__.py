"""Lookup of what a text names: ids by their beginnings, points in the past, events by filters."""
