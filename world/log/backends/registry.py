"""Registry of storage back ends: an entry point of the group ``worldprotocol.storage`` for each URL scheme.

The name of the entry point is the scheme; its value is an object with the methods of ``StorageBackend``. The back ends
of this distribution, ``sqlite`` and ``postgresql``, are entry points like those of other distributions, and are looked
up first: no other distribution can take their schemes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import TYPE_CHECKING, Final, Literal, Protocol, cast

from world.error_codes import ErrorCode
from world.errors import RefusedError

if TYPE_CHECKING:
    from sqlalchemy import URL

    from world.log.store import Store
    from world.log.url import LogAddress

GROUP: Final = "worldprotocol.storage"
"""The group of entry points by which packages offer storage back ends."""

_OWN: Final = "world-protocol"

Durability = Literal["full", "normal"]
"""``full``: a commit survives the loss of power; ``normal``: the last commits may be lost, none is torn."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """How a store is opened.

    Args:
        read_only: change no byte.
        create: make the store where it does not exist.
        durability: when a commit is safe.
        busy_timeout_ms: how long a writer waits for the lock, in milliseconds.
    """

    read_only: bool
    create: bool
    durability: Durability
    busy_timeout_ms: int


class StorageBackend(Protocol):
    """One kind of database that stores logs."""

    def parse(self, url: URL, name: str) -> LogAddress:
        """Return the address of a log.

        Args:
            url: address of the store; its scheme is that of the entry point, with or without a ``+driver``.
            name: the log's name in the store.

        Raises:
            ValueError: the URL names no store; the text is the reason, as a clause without a full stop.
        """
        ...

    def open(self, address: LogAddress, options: StoreOptions) -> Store:
        """Connect to the store of an address that ``parse`` returned.

        Raises:
            RefusedError: ``LOG_NOT_FOUND``, ``NOT_A_LOG``, ``LOG_UNAVAILABLE`` and others.
        """
        ...


_loaded: dict[str, StorageBackend] = {}  # what was not found is looked up again: a package may be installed meanwhile


def storage_backend(scheme: str) -> StorageBackend:
    """Return the back end that is registered for a URL scheme.

    Args:
        scheme: the part before ``://``, without a ``+driver``.

    Raises:
        LookupError: none is registered; the text names those that are.
        RefusedError: ``NOT_LOADED`` when its code cannot be loaded, or when two distributions offer the scheme.
    """
    found = _loaded.get(scheme)
    if found is None:
        found = _loaded[scheme] = _load(_entry_point(scheme))
    return found


def _entry_point(scheme: str) -> EntryPoint:
    points = [point for point in _own() if point.name == scheme] or list(entry_points(group=GROUP, name=scheme))
    if len({point.value for point in points}) > 1:
        raise RefusedError(
            ErrorCode.NOT_LOADED,
            f"Several installed packages offer the storage back end {scheme!r}: "
            f"{', '.join(sorted(point.value for point in points))}. Uninstall all but one of them.",
            scheme=scheme,
        )
    if not points:
        names = sorted({point.name for point in [*_own(), *entry_points(group=GROUP)]})
        raise LookupError(
            f"no storage back end is registered for {scheme}; registered are {', '.join(names) or 'none'} (entry "
            f"points of {GROUP})"
        )
    return points[0]


def _own() -> Iterable[EntryPoint]:
    try:
        return distribution(_OWN).entry_points.select(group=GROUP)
    except PackageNotFoundError:
        return ()


def _load(point: EntryPoint) -> StorageBackend:
    try:
        return cast("StorageBackend", point.load())
    except Exception as error:
        raise RefusedError(
            ErrorCode.NOT_LOADED,
            f"The storage back end {point.name!r} could not be loaded from {point.value}: {type(error).__name__}: "
            f"{error}. Install the package that offers it again, or remove it.",
            reference=point.value,
        ) from error
