"""Observation of side effects (KLIS-6): comparison of an agent's operations with its declaration."""

from host.observation.operations import Operations, RuntimePaths
from host.observation.session_watch import Depth, Observation, Violation, Watch

__all__ = ["Depth", "Observation", "Operations", "RuntimePaths", "Violation", "Watch"]
