"""Finding handlers: by reference, or in installed packages.

A reference is ``module:attribute`` or ``path/to/file.py:attribute``; the attribute is a handler, a
registry, or a list of handlers. Packages offer theirs as entry points of the group
``worldprotocol.effects``. Loading runs code of
others: whatever it raises becomes a refusal that names the reference.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from host.answers import shown
from host.effects import EffectHandler, EffectRegistry
from world.canonical import sha256_hex
from world.errors import Refused

__all__ = ["ENTRY_POINTS", "find_effects", "load_handlers"]

ENTRY_POINTS: Final = "worldprotocol.effects"
"""The group of entry points by which packages offer effect handlers."""


def find_effects(references: Iterable[str] = (), *, entry_points: bool = True) -> EffectRegistry:
    """Return a registry of all handlers that are at hand.

    Args:
        references: ``module:attribute`` or ``file.py:attribute``, from the operator.
        entry_points: whether to take those of installed packages, too.

    Raises:
        Refused: as ``load_handlers``; ``DUPLICATE_HANDLER`` where two handlers stand for one type of effect.
    """
    registry = EffectRegistry()
    for given in _entry_points() if entry_points else ():
        registry.add(given)
    for reference in references:
        for given in load_handlers(reference):
            registry.add(given)
    return registry


def load_handlers(reference: str) -> list[EffectHandler]:
    """Return the handlers that a reference names.

    Args:
        reference: ``module:attribute`` or ``file.py:attribute``.

    Raises:
        Refused: ``HANDLER_NOT_LOADED`` where there is no such thing, its code raises, or it is no handler.
    """
    module, colon, attribute = reference.rpartition(":")
    if not colon or not module or not attribute:
        raise _refused(reference, "write module:attribute, or path/to/file.py:attribute")
    try:
        loaded = _load_file(module) if module.endswith(".py") else importlib.import_module(module)
    except Exception as error:  # noqa: BLE001 - a module may raise anything; SystemExit and the like pass
        raise _refused(reference, f"loading {module} raised {shown(error)}") from None
    try:
        found = attrgetter(attribute)(loaded)
    except AttributeError:
        raise _refused(reference, f"{module} has no {attribute}") from None
    return _handlers(reference, found)


def _entry_points() -> list[EffectHandler]:
    from importlib.metadata import entry_points  # reading what is installed takes a while; only hosts need it

    found: list[EffectHandler] = []
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value)):
        owner = f"entry point {point.name} of {point.dist.name if point.dist else 'an unknown package'}"
        try:
            given = point.load()
        except Exception as error:  # noqa: BLE001 - as above
            raise _refused(owner, f"loading {point.value} raised {shown(error)}") from None
        found += _handlers(owner, given)
    return found


def _handlers(reference: str, found: Any) -> list[EffectHandler]:
    if isinstance(found, EffectHandler):
        return [found]
    if isinstance(found, EffectRegistry):
        return list(found)
    is_several = isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping))
    several = list(found) if is_several else [found]
    if several and all(isinstance(given, EffectHandler) for given in several):
        return several
    raise _refused(
        reference,
        f"it is {type(found).__name__}; give a handler (made by @handler), a registry, or a list of handlers",
    )


def _load_file(path: str) -> ModuleType:
    """Return the module of a file, the same one each time: two references into it share its state."""
    file = Path(path).resolve()
    name = f"worldprotocol_file_{sha256_hex(str(file).encode())[:16]}_{file.stem}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it is being made
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _refused(reference: str, why: str) -> Refused:
    return Refused(
        "HANDLER_NOT_LOADED",
        f"No effect handler could be had from {reference!r}: {why}.",
        reference=reference,
    )
