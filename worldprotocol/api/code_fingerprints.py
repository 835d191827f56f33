"""Whether the functions of the domain at hand are those that were adopted at some point of a log.

The schema of a domain holds everything but its Python functions; of those the adoption has the hashes. Of what an
authority sees of a proposal, only computed values, and what an action declares to touch where it reads one, come from
such functions. The policy tools import this.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from typing import Final

from world.core import Domain
from world.events.realm_events import DomainAdopted
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import FrozenDict
from world.model.snapshot import SnapshotView
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.ports import Case

__all__ = ["CodeThen", "WatchedView", "watched"]

COMPUTED: Final = "computed:"


class CodeThen:
    """Compares the functions for computed values at hand with those adopted in the course of a log.

    Args:
        archive: of the log; its adoptions are read once.
        domain: the domain at hand.

    Raises:
        DamagedLogError: where an adoption cannot be read.
    """

    def __init__(self, archive: Archive, domain: Domain) -> None:
        self._places: list[int] = []
        self._changed: list[tuple[str, ...]] = []
        for logged in archive.log.read(topics=[DomainAdopted.TOPIC]):
            event = decoded(logged)
            if isinstance(event, DomainAdopted):
                self._places.append(logged.position)
                self._changed.append(changed_computed(domain, event))

    def changed(self, before: int) -> tuple[str, ...]:
        """Return the names of computed values whose functions were others then, in order; none where all are the same.

        Args:
            before: a position of the log; what was adopted last before it counts.
        """
        at = bisect_left(self._places, before)
        return self._changed[at - 1] if at else ()


def changed_computed(domain: Domain, adopted: DomainAdopted) -> tuple[str, ...]:
    """Return the short names of computed values whose functions at hand are not the adopted ones, in order."""
    return tuple(name.removeprefix(COMPUTED) for name in domain.changed(adopted.sources) if name.startswith(COMPUTED))


def changed_versions(adopted: DomainAdopted, domain: Domain) -> tuple[str, ...]:
    """Return the distributions that functions reach whose version is another one than was adopted, in words."""
    then, now = adopted.distributions, domain.distributions()
    if then is None:
        return ()
    return tuple(
        f"{name} {now.get(name, 'is not reached')} ({then.get(name, 'was not reached')} when adopted)"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    )


def is_whole(adopted: DomainAdopted) -> bool:
    """Whether the recorded identities cover all that functions reach, and not each function's own source alone."""
    return all(":" in told for told in adopted.sources.values() if told is not None)


class WatchedView(SnapshotView):
    """A view that notes whether anybody reads its computed values: ``was_read``."""

    __slots__ = ("was_read",)
    was_read: bool

    def __init__(self, data: FrozenDict, computed: FrozenDict) -> None:
        """Nobody has read anything yet."""
        super().__init__(data, computed)
        object.__setattr__(self, "was_read", False)

    def __getattribute__(self, name: str) -> object:
        """Return an attribute, and note it where that is the computed values."""
        if name == "computed":
            object.__setattr__(self, "was_read", True)
        return super().__getattribute__(name)


def watched(case: Case) -> tuple[Case, WatchedView]:
    """Return a case whose view notes whether computed values are read, and that view.

    They count as read where the manifest that the action declares names one.
    """
    view = WatchedView(case.view.data, case.view.computed)
    if b"computed" in canonical_bytes((case.action or {}).get("manifest")):
        object.__setattr__(view, "was_read", True)
    return replace(case, view=view), view
