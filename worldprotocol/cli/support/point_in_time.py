"""The option ``--at`` of every command that looks; ``worldprotocol.api.lookup.point_in_time`` reads its value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import click

from worldprotocol.api.lookup.point_in_time import Point, PointInTime, end_of_commit, moment, point_of, world_at

__all__ = [
    "AT_METAVAR",
    "Point",
    "PointInTime",
    "at_option",
    "end_of_commit",
    "moment",
    "point_of",
    "world_at",
]

AT_METAVAR: Final = "POSITION|WORLD|PROPOSAL|BRANCH|HEAD|TIME"
"""How the help writes what ``point_of`` takes."""


def at_option(help_text: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return what gives a command ``--at``; it is handed the text, for ``moment``."""
    return click.option("--at", metavar=AT_METAVAR, help=help_text)
