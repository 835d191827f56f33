"""Triples: claims of an agent on a resource (KLIS-0, KLIS-1 section 2.1)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.resource_values import ResourceClaim
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource, recorded_resource
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.model.record import Record

__all__ = ["CHANGES", "Confidence", "Triple", "changes_files", "read_claim", "read_confidence", "read_triple"]

CHANGES: Final = frozenset({Predicate.PROVIDES, Predicate.MUTATES, Predicate.DELETES, Predicate.RENAMES})
"""Predicates that permit their holder to change a resource."""

_REMEMBERED: Final = 8_192
_HIGH: Final = 0.8
_MEDIUM: Final = 0.5


class Confidence(StrEnum):
    """Confidence of the agent in a claim (KP-0), without effect on conflicts."""

    HIGH = "High"
    MEDIUM = "Medium"
    LOW = "Low"


def read_confidence(given: str | float) -> Confidence:
    """Return a confidence: of numbers, High from 0.8, Medium from 0.5 (KP-0)."""
    if isinstance(given, str):
        return Confidence(given)
    return Confidence.HIGH if given >= _HIGH else Confidence.MEDIUM if given >= _MEDIUM else Confidence.LOW


_WITH_CONTENTS: Final = frozenset({Predicate.DELETES, Predicate.RENAMES})


class Triple(Record, frozen=True):
    """A predicate on a resource with a confidence."""

    predicate: Predicate
    resource: Resource
    confidence: Confidence = Confidence.HIGH
    WIRE: ClassVar = "predicate=predicate.value resource=resource.text confidence=confidence.value"

    @property
    def covers(self) -> bool:
        """Whether the claim includes everything below the resource."""
        resource = self.resource
        return resource.subtree or (resource.nested and self.predicate in _WITH_CONTENTS)

    def claim(self) -> ResourceClaim:
        """Return predicate and resource for an event."""
        return ResourceClaim(predicate=self.predicate.value, resource=self.resource.text)


def read_claim(claim: ResourceClaim, types: ResourceTypes = STANDARD) -> Triple:
    """Return the triple of a recorded claim; arguments and errors as of ``read_triple``."""
    return read_triple(claim.predicate, claim.resource, types)


def read_triple(predicate: str, resource: str, types: ResourceTypes = STANDARD, *, confidence: str = "High") -> Triple:
    """Return a triple from the log.

    Args:
        predicate: its predicate.
        resource: its resource in canonical form.
        types: the types that were in force.
        confidence: its confidence.

    Raises:
        DamagedLogError: ``BAD_TRIPLE``, ``BAD_RESOURCE``.
    """
    try:
        return _recorded(predicate, resource, confidence, types)
    except (TypeError, ValueError):
        raise DamagedLogError(
            ErrorCode.BAD_TRIPLE,
            f"The log holds the triple ({predicate!r}, {resource!r}, {confidence!r}), which is invalid.",
        ) from None


@lru_cache(_REMEMBERED)
def _recorded(predicate: str, resource: str, confidence: str, types: ResourceTypes) -> Triple:
    return Triple(Predicate(predicate), recorded_resource(resource, types), Confidence(confidence))


def changes_files(triples: Iterable[Triple]) -> bool:
    """Return whether claims permit a change of files, so that a backup is necessary before they are granted (KO-7)."""
    return any(triple.resource.type == "FILE" and triple.predicate in CHANGES for triple in triples)
