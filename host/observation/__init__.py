"""Observation of side effects (KLIS-6): what an agent does, held against what it declared."""

from host.observation.operations import Operations, RuntimePaths
from host.observation.watch import Depth, Observation, Violation, Watch

__all__ = ["Depth", "Observation", "Operations", "RuntimePaths", "Violation", "Watch"]
