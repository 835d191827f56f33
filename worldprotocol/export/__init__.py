"""Exports of a log: JSON lines, redaction, proofs, salvage."""
