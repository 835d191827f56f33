"""Computed values of past worlds, made by the domain at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from world.core import Domain, recompute
from world.errors import Refused
from world.patch import EMPTY
from worldprotocol.assemble import load_any_domain
from worldprotocol.cli.opening import make_importable

if TYPE_CHECKING:
    from world.events import WorldSealed
    from world.frozen import FrozenDict
    from world.limits import Limits
    from worldprotocol.cli.options import Desk


class ComputedValues:
    """Makes the computed values of worlds; the domain is loaded once, when the first ones are wanted.

    Args:
        desk: of the command, whose configuration names the domain.
    """

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._loaded: tuple[Domain, Limits] | str | None = None

    def of(self, sealed: WorldSealed, data: FrozenDict) -> tuple[FrozenDict, str | None]:
        """Return the computed values of a world by their full names, and why there are none where that is so.

        Args:
            sealed: the world.
            data: its data.
        """
        if self._loaded is None:
            self._loaded = self._load()
        if isinstance(self._loaded, str):
            return EMPTY, self._loaded
        domain, limits = self._loaded
        if domain.schema.hash != sealed.schema_hash:
            return EMPTY, f"the domain at hand has another schema than the world's, {sealed.schema_hash[:12]}"
        try:
            computed: FrozenDict = limits.in_time(lambda: recompute(domain, data))
        except Refused as refused:
            return EMPTY, refused.message
        return computed, None

    def _load(self) -> tuple[Domain, Limits] | str:
        """Return the domain, or why there is none."""
        try:
            config = self._desk.settings()
            if config.domain is None:
                return "no domain is at hand; world.toml names one"
            make_importable(config.folder)
            return load_any_domain(config.domain, base=config.folder), config.chosen_limits()
        except Refused as refused:
            return refused.message
