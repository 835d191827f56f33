"""Entry points of the installed distributions, read again only after an installation.

``importlib.metadata`` reads a file of each distribution for each question: 10 ms where a hundred are installed, several
times per realm that is opened.
"""

from __future__ import annotations

import sys
from importlib import metadata
from importlib.metadata import EntryPoints
from pathlib import Path
from typing import Any, Final

__all__ = ["entry_points"]

_read: Final[dict[tuple[object, ...], Any]] = {}
"""The entry points of all groups, by the state of the places where distributions are found; the last one only.

Their type differs between versions of Python; each has the method ``select``.
"""

_selected: Final[dict[str, tuple[Any, EntryPoints]]] = {}
"""By group, what its entry points were selected from, and these."""


def entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group.

    Distributions that were installed or removed since the last call are taken into account: their folders are entries
    of the folders on ``sys.path``, which change with them.

    Args:
        group: the name of the group.
    """
    state = (*map(id, sys.meta_path), *map(_state_of, sys.path))
    known = _read.get(state)
    if known is None:
        known = metadata.entry_points()
        _read.clear()
        _read[state] = known
    source, selected = _selected.get(group, (None, None))
    if source is not known or selected is None:
        selected = known.select(group=group)
        _selected[group] = known, selected
    return selected


def _state_of(place: str) -> tuple[object, ...]:
    """Return what differs once something was added to a folder or removed from it; relative folders are resolved."""
    try:
        found = Path(place).stat()
    except OSError:  # it does not exist
        return (place,)
    return place, found.st_dev, found.st_ino, found.st_mtime_ns, found.st_nlink, found.st_size
