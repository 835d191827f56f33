"""Finding policies: by reference, or in installed packages.

A reference is ``module:attribute`` or ``path/to/file.py:attribute``. What it names is a policy, a rule, or
several rules; rules become a policy under the name that is asked for. Loading runs code of others: whatever
it raises becomes a refusal that names the reference.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib.abc import ExecutionLoader
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec, spec_from_loader
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from authority.policy import Policy
from authority.source import FILE_LABEL
from authority.words import told
from world.errors import Refused


def policy_from_reference(reference: str, *, name: str | None = None) -> Policy:
    """Return the policy that a reference names.

    Args:
        reference: ``module:attribute`` or ``file.py:attribute``.
        name: what rules are called together; None takes the attribute's name. A policy keeps its own.

    Raises:
        Refused: ``POLICY_NOT_LOADED`` where there is no such thing or its code raises; ``INVALID_POLICY`` and
            ``INVALID_RULE`` for what is no policy.
    """
    module, _, attribute = reference.rpartition(":")
    if not module or not attribute:
        raise _refused(reference, "write module:attribute, or path/to/file.py:attribute")
    load = _load_file if module.endswith(".py") else importlib.import_module
    loaded = _guarded(reference, lambda: load(module))
    try:
        found = attrgetter(attribute)(loaded)
    except AttributeError:
        raise _refused(reference, f"{module} has no {attribute}") from None
    return _as_policy(reference, found, name or attribute.rpartition(".")[2])


def policy_from_entry_point(point: EntryPoint) -> Policy:
    """Return the policy that an installed package offers; rules are called by the entry point's name.

    Raises:
        Refused: as ``policy_from_reference``; also for a policy whose own name is another than the entry
            point's.
    """
    owner = f"entry point {point.name} ({point.value})"
    policy = _as_policy(owner, _guarded(owner, point.load), point.name)
    if policy.name != point.name:
        raise _refused(owner, f"its policy calls itself {policy.name!r}; give both the same name")
    return policy


def _guarded(reference: str, load: Callable[[], Any]) -> Any:
    try:
        return load()
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - a module may raise anything, sys.exit() too
        raise _refused(reference, f"loading it raised {told(error)}") from None


def _as_policy(reference: str, found: Any, name: str) -> Policy:
    if isinstance(found, Policy):
        return found
    several = (
        isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping)) and not callable(found)
    )
    try:
        return Policy(name, found if several else [found])
    except Refused as refused:
        raise Refused(
            refused.code, f"{reference}: {refused.message}", **{**refused.details, "reference": reference}
        ) from None


class _TextLoader(ExecutionLoader):
    """Runs a text that was read once, so that what is hashed is what runs; writes no compiled files."""

    def __init__(self, path: Path, text: str) -> None:
        self._path = path
        self._text = text

    def get_filename(self, fullname: str) -> str:
        return str(self._path)

    def get_source(self, fullname: str) -> str:
        return self._text


def _load_file(path: str) -> ModuleType:
    """Return the module of a file; an unchanged file gives the same module again."""
    file = Path(path).resolve()
    text = file.read_text(encoding="utf-8")
    identity = hashlib.sha256(f"{file}\n{text}".encode()).hexdigest()
    name = f"worldprotocol_rules_{identity[:24]}"
    if name in sys.modules:
        return sys.modules[name]
    loader = _TextLoader(file, text)
    spec = spec_from_loader(name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    setattr(module, FILE_LABEL, file.name)
    sys.modules[name] = module  # dataclasses look their module up while it is being made
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _refused(reference: str, why: str) -> Refused:
    return Refused(
        "POLICY_NOT_LOADED", f"No policy could be had from {reference!r}: {why}.", reference=reference
    )
