"""Comparison of the loaded domain's functions with those adopted in a log.

The schema of a domain holds everything except its Python functions; the adoption records their hashes. Of the input of
an authority, only computed values, and the resources that an action declares from them, depend on such functions.
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
from world.read_models.decoding import decoded, registry_events
from world.state.ports import Case

__all__ = ["CodeThen", "WatchedView", "watched"]

COMPUTED: Final = "computed:"


class CodeThen:
    """Compares the loaded functions for computed values with those adopted in a log.

    Args:
        archive: archive of the log; its adoptions are read once.
        domain: the loaded domain.

    Raises:
        DamagedLogError: an adoption cannot be read.
    """

    def __init__(self, archive: Archive, domain: Domain) -> None:
        self._places: list[int] = []
        self._changed: list[tuple[str, ...]] = []
        for logged in registry_events(archive.log, DomainAdopted):
            event = decoded(logged)
            if isinstance(event, DomainAdopted):
                self._places.append(logged.position)
                self._changed.append(changed_computed(domain, event))

    def changed(self, before: int) -> tuple[str, ...]:
        """Return the names of computed values with other functions at that time, in order.

        Args:
            before: a position of the log; the last adoption before it is used.
        """
        at = bisect_left(self._places, before)
        return self._changed[at - 1] if at else ()


def changed_computed(domain: Domain, adopted: DomainAdopted) -> tuple[str, ...]:
    """Return the short names of computed values with other functions than adopted, in order."""
    return tuple(name.removeprefix(COMPUTED) for name in domain.changed(adopted.sources) if name.startswith(COMPUTED))


def changed_versions(adopted: DomainAdopted, domain: Domain) -> tuple[str, ...]:
    """Describe the distributions that functions use in other versions than adopted."""
    then, now = adopted.distributions, domain.distributions()
    if then is None:
        return ()
    return tuple(
        f"{name} {now.get(name, 'is not reached')} ({then.get(name, 'was not reached')} when adopted)"
        for name in sorted({*then, *now})
        if then.get(name) != now.get(name)
    )


def is_whole(adopted: DomainAdopted) -> bool:
    """Return whether the recorded hashes cover all code that the functions use."""
    return all(":" in identity for identity in adopted.sources.values() if identity is not None)


class WatchedView(SnapshotView):
    """View that records in ``was_read`` whether its computed values were read."""

    __slots__ = ("was_read",)
    was_read: bool

    def __init__(self, data: FrozenDict, computed: FrozenDict) -> None:
        """Begin with nothing read."""
        super().__init__(data, computed)
        object.__setattr__(self, "was_read", False)

    def __getattribute__(self, name: str) -> object:
        """Return an attribute; record reads of ``computed``."""
        if name == "computed":
            object.__setattr__(self, "was_read", True)
        return super().__getattribute__(name)


def watched(case: Case) -> tuple[Case, WatchedView]:
    """Return a case with a view that records reads of computed values, and the view.

    They also count as read if the action's declared manifest names one.
    """
    view = WatchedView(case.view.data, case.view.computed)
    if b"computed" in canonical_bytes((case.action or {}).get("manifest")):
        object.__setattr__(view, "was_read", True)
    return replace(case, view=view), view
