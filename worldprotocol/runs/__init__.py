"""Governed runs: code and commands of agents, under leases, watched, recorded and, where they go wrong, undone."""

from worldprotocol.runs.verification import VerificationLog, read_verification

__all__ = ["VerificationLog", "read_verification"]
