"""What the operator decides about leases; recorded in the log, so that recorded verdicts follow from it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from world.errors import Refused

__all__ = ["KlisSettings"]

_MINUTE = 60_000
_DAY = 24 * 60 * _MINUTE


@dataclass(frozen=True, slots=True)
class KlisSettings:
    """The named limits and choices of KLIS; every time in milliseconds.

    Args:
        max_triples: triples of one manifest.
        max_resource_chars: characters of one resource.
        max_depth: names in one resource's path.
        min_subtree_depth: how many names a subtree's root must have; 1 refuses ``FILE:/*`` (KM-7.2).
        default_ttl_ms: time to live of a lease when the request names none.
        max_ttl_ms: longest time to live a request may name.
        max_hold_ms: how long heartbeats can keep one lease.
        max_waiting: requests in the queue at the same time.
        backoff_ms: when to ask again after the first Die; doubled with each further one of the session.
        max_backoff_ms: where doubling ends.
        max_named_conflicts: conflicts a verdict spells out, the oldest holders' first; it counts all.
        max_proposal_retries: how often the engine asks again for a proposal that dies before it is rejected.
        accept_priority: whether a manifest's priority_timestamp registers its agent; otherwise the server's clock does.
        max_signature_age_ms: how far the issued_at of a signed manifest may be from the server's clock.
        administrators: ids of those who may revoke leases and keys, separated by spaces (KP-4b).
        lower_case: whether paths are compared in lower case, for systems that do (KM-4.2b).
    """

    max_triples: int = 10_000
    max_resource_chars: int = 4_096
    max_depth: int = 256
    min_subtree_depth: int = 1
    default_ttl_ms: int = _MINUTE
    max_ttl_ms: int = _DAY
    max_hold_ms: int = 7 * _DAY
    max_waiting: int = 100_000
    backoff_ms: int = 1_000
    max_backoff_ms: int = _MINUTE
    max_named_conflicts: int = 16
    max_proposal_retries: int = 30
    accept_priority: bool = False
    max_signature_age_ms: int = 5 * _MINUTE
    administrators: str = "operator"
    lower_case: bool = False

    def to_wire(self) -> dict[str, Any]:
        """Return the settings as JSON, by their Python names."""
        return asdict(self)

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> KlisSettings:
        """Return the settings with the named ones changed.

        Raises:
            Refused: ``INVALID_CONFIG`` for a name that does not exist, a wrong type, or a number below 1 (below 0
                for ``min_subtree_depth``).
        """
        known = {field.name: field.default for field in fields(cls)}
        for name, value in told.items():
            least = 0 if name == "min_subtree_depth" else 1
            fits = name in known and type(value) is type(known[name])
            if not fits or (type(value) is int and not least <= value < 1 << 53):
                raise Refused(
                    "INVALID_CONFIG",
                    f"[klis] {name} = {value!r}: the settings are {', '.join(known)}; "
                    "numbers are whole and at least 1.",
                    name=name,
                )
        return cls(**told)
