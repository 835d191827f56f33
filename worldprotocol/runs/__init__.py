"""Governed runs: code and commands of agents under leases, observed, recorded and, after a failure, undone."""

from worldprotocol.runs.verification import VerificationLog, read_verification

__all__ = ["VerificationLog", "read_verification"]
