"""Replay and verification of a log."""
