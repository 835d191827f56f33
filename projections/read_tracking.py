"""Record which absent values a local predicate reads.

``[name]`` and ``get(name)`` require a value; ``get(name, default)`` and ``in`` handle its absence, as ``coalesce`` and
``isNull`` do. Source: intent specification 7.4.2; INT-7.4.2c. For ``projections.availability``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from world.core import AvailabilityContext
from world.core.availability import ACTOR
from world.model.paths import format_name

__all__ = ["TrackingContext"]


class TrackingContext:
    """A context that delegates to another one and records reads of absent values.

    Args:
        context: the context that is read.

    Attributes:
        absent: the absent paths that were read, in order of the reads.
    """

    __slots__ = ("_actor", "absent", "computed", "data")

    def __init__(self, context: AvailabilityContext) -> None:
        """Wrap a context without any read."""
        self.absent: dict[str, None] = {}
        self.data = context.data
        self.computed = _TrackedMapping(context.computed, "computed", self.absent)
        self._actor = None if context.actor is None else _TrackedActor(context.actor, self.absent)

    @property
    def actor(self) -> _TrackedActor | None:
        """The actor; reading it without an actor is recorded."""
        if self._actor is None:
            self.absent[ACTOR] = None
        return self._actor


class _TrackedActor:
    __slots__ = ("_absent", "_read")

    def __init__(self, read: Any, absent: dict[str, None]) -> None:
        self._read = read
        self._absent = absent

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._read, name)
        if value is None:
            self._absent[f"{ACTOR}.{name}"] = None
        return _TrackedMapping(value, f"{ACTOR}.{name}", self._absent) if isinstance(value, Mapping) else value


class _TrackedMapping(Mapping[str, Any]):
    __slots__ = ("_absent", "_path", "_read")

    def __init__(self, read: Mapping[str, Any], path: str, absent: dict[str, None]) -> None:
        self._read = read
        self._path = path
        self._absent = absent

    def __getitem__(self, name: str) -> Any:
        place = name if name.startswith("computed.") else f"{self._path}.{format_name(name)}"
        if name not in self._read:
            self._absent[place] = None
        value = self._read[name]
        return _TrackedMapping(value, place, self._absent) if isinstance(value, Mapping) else value

    def get(self, name: str, default: Any = None) -> Any:
        if default is not None and name not in self._read:
            return default
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return name in self._read

    def __iter__(self) -> Iterator[str]:
        return iter(self._read)

    def __len__(self) -> int:
        return len(self._read)

    def __bool__(self) -> bool:
        return True  # keeps tracking in `meta or {}`
