"""The kinds of bindings, by name: those of this package, and those that installed packages offer.

A package offers a kind as an entry point of the group ``worldprotocol.bindings``: its name is the kind, its object a
subclass of ``authority.bindings.binding.Binding``. Kinds of packages are looked up only when a binding names a kind
that is not built in, and each is loaded when it is named for the first time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final, get_args

from authority.bindings.auto_approve import AutoApproveBinding
from authority.bindings.binding import Binding
from authority.bindings.hitl import HitlBinding
from authority.bindings.policy_rules import PolicyRulesBinding
from authority.bindings.tribunal import TribunalBinding
from authority.bounded_text import error_text
from world.code.entry_points import entry_points
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["BUILT_IN", "ENTRY_POINTS", "BindingRegistry", "read_binding"]

ENTRY_POINTS: Final = "worldprotocol.bindings"
"""The group of entry points by which packages offer kinds of bindings."""

BUILT_IN: Final[Mapping[str, type[Binding]]] = {
    "auto_approve": AutoApproveBinding,
    "policy_rules": PolicyRulesBinding,
    "hitl": HitlBinding,
    "tribunal": TribunalBinding,
}
"""The kinds of this package; a kind that a package offers under one of these names is not used."""


class BindingRegistry:
    """Kinds of bindings by name; safe to use from several threads.

    Args:
        offered: entry points of further kinds; None takes those of the installed packages when one is needed.
    """

    def __init__(self, offered: Iterable[EntryPoint] | None = None) -> None:
        self._given = None if offered is None else tuple(offered)
        self._offered: dict[str, list[EntryPoint]] | None = None
        self._loaded: dict[str, type[Binding]] = {}
        self._lock = threading.RLock()

    def read(self, wire: Mapping[str, Any]) -> Binding:
        """Return the binding in wire form, defaults filled in.

        Raises:
            RefusedError: ``UNKNOWN_BINDING`` for a kind that is not available, ``INVALID_VALUE`` for wrong or unknown
                fields; ``NOT_LOADED`` for a kind of a package that cannot be loaded, ``DUPLICATE_NAME`` where several
                packages offer it.
        """
        kind = wire.get("kind") if isinstance(wire, Mapping) else None
        if not isinstance(kind, str):
            raise self._unknown(kind)
        return self._class(kind).read(wire)

    def _class(self, kind: str) -> type[Binding]:
        known = BUILT_IN.get(kind) or self._loaded.get(kind)
        if known is not None:
            return known
        with self._lock:
            points = self._points().get(kind, [])
            if not points:
                raise self._unknown(kind)
            if len(points) > 1:
                values = sorted(point.value for point in points)
                raise RefusedError(
                    ErrorCode.DUPLICATE_NAME,
                    f"Several packages offer bindings of the kind {kind!r} ({', '.join(values)}); remove all but one.",
                    kind=kind,
                    offered=values,
                )
            return self._loaded.setdefault(kind, _load(points[0]))

    def _points(self) -> dict[str, list[EntryPoint]]:
        if self._offered is None:
            offered = defaultdict(list)
            for point in entry_points(group=ENTRY_POINTS) if self._given is None else self._given:
                offered[point.name].append(point)
            self._offered = dict(offered)
        return self._offered

    def _unknown(self, kind: object) -> RefusedError:
        with self._lock:
            known = [*BUILT_IN, *sorted(self._points().keys() - BUILT_IN)]
        return RefusedError(
            ErrorCode.UNKNOWN_BINDING,
            f"A binding is an object whose kind is one of {', '.join(known)}, not {kind!r:.80}. Packages offer further "
            f"kinds as entry points of the group {ENTRY_POINTS}.",
            known=known,
        )


def _load(point: EntryPoint) -> type[Binding]:
    """Return the class that an entry point offers.

    Raises:
        RefusedError: ``NOT_LOADED`` where its code raises, or offers something else.
    """
    try:
        found = point.load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code of a package may raise anything, SystemExit too
        raise _not_loaded(point, f"its code raised {error_text(error)}") from error
    if not (isinstance(found, type) and issubclass(found, Binding)):
        raise _not_loaded(point, "it is no subclass of authority.bindings.binding.Binding")
    if get_args(found.model_fields["kind"].annotation) != (point.name,):
        raise _not_loaded(point, f'its class has to declare kind: Literal["{point.name}"]')
    return found


def _not_loaded(point: EntryPoint, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.NOT_LOADED,
        f"Bindings of the kind {point.name!r} ({point.value}) cannot be used: {why}.",
        reference=point.value,
    )


_INSTALLED: Final = BindingRegistry()


def read_binding(wire: Mapping[str, Any]) -> Binding:
    """Return the binding in wire form, of a built-in kind or one that an installed package offers.

    Raises:
        RefusedError: see ``BindingRegistry.read``.
    """
    return _INSTALLED.read(wire)
