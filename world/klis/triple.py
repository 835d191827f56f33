"""The triple: one claim of an agent on a resource (KLIS-0, KLIS-1 section 2.1). The agent is the manifest's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from world.errors import DamagedLogError
from world.klis.predicate import Predicate
from world.klis.resources.resource import STANDARD, Resource, ResourceTypes, recorded_resource

__all__ = ["Confidence", "Triple", "read_confidence", "read_triple"]

_REMEMBERED: Final = 8_192
_HIGH: Final = 0.8
_MEDIUM: Final = 0.5


class Confidence(StrEnum):
    """How sure the agent is that it needs the claim (KP-0); it is recorded and excludes nothing."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


def read_confidence(told: str | float) -> Confidence:
    """Return the confidence of a name or of a number: from 0.8 on High, from 0.5 on Medium, else Low (KP-0)."""
    if isinstance(told, str):
        return Confidence(told)
    return Confidence.HIGH if told >= _HIGH else Confidence.MEDIUM if told >= _MEDIUM else Confidence.LOW


_WITH_CONTENTS: Final = frozenset({Predicate.DELETES, Predicate.RENAMES})


@dataclass(frozen=True, slots=True)
class Triple:
    """A predicate on a resource, with the confidence of who claims it."""

    predicate: Predicate
    resource: Resource
    confidence: Confidence = Confidence.HIGH

    @property
    def covers(self) -> bool:
        """Whether the claim is on everything below the resource too."""
        resource = self.resource
        return resource.subtree or (resource.nested and self.predicate in _WITH_CONTENTS)

    def to_wire(self) -> dict[str, Any]:
        """Return the triple as an entry of a manifest's scope."""
        return {
            "predicate": self.predicate.value,
            "resource": self.resource.text,
            "confidence": self.confidence.value,
        }


def read_triple(told: Mapping[str, Any], types: ResourceTypes = STANDARD) -> Triple:
    """Return a triple as the log holds it.

    Args:
        told: an object with ``predicate``, the canonical ``resource`` and maybe ``confidence``; more is ignored.
        types: the types that were in force.

    Raises:
        DamagedLogError: ``BAD_TRIPLE``, ``BAD_RESOURCE``.
    """
    try:
        return _recorded(told["predicate"], told["resource"], told.get("confidence", "High"), types)
    except (KeyError, TypeError, ValueError):
        raise DamagedLogError("BAD_TRIPLE", f"The log holds the triple {dict(told)!r}, which cannot be.") from None


@lru_cache(_REMEMBERED)
def _recorded(predicate: str, resource: str, confidence: str, types: ResourceTypes) -> Triple:
    return Triple(Predicate(predicate), recorded_resource(resource, types), Confidence(confidence))
