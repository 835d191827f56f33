"""World Protocol: the roof over the rooms, and what people import and run.

    from worldprotocol import Domain, Realm, set_

Everything here is imported when it is first used, so that the command line starts quickly.

A file ``world.py`` beside a program is found before the package ``world``, and importing the engine would then fail
with a sentence about a missing submodule. So modules that shadow a package of this project are refused here, by name.
Only where a name leads is looked up; nothing is imported or run to find out.
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from authority import Approve, Escalate, Narrow, Policy, Reject, rule
    from host import EffectFailure, EffectResult, external, handler
    from projections import NoIntent, ProjectionRequest, Select, projection
    from world.core import ActionContext, ActionSteps, Domain, EffectType, Patch, effect, merge, set_, unset
    from world.errors import (
        DamagedLogError,
        DivergenceError,
        LogBusyError,
        RefusedError,
        ScopeViolationError,
        StorageFullError,
        WaitTimeoutError,
        WorldProtocolError,
    )
    from world.model.intent import IntentBody, IntentInstance, IntentScope
    from world.model.source import SourceEvent
    from world.state.ports import Case
    from worldprotocol.api.asynchronous.realm import AsyncRealm
    from worldprotocol.api.executing.worker import Worker
    from worldprotocol.api.realm import Realm
    from worldprotocol.api.requests import ProjectionOutcome
    from worldprotocol.directory.directory import RealmDirectory
    from worldprotocol.runs.governed import RunOptions

_PACKAGES: Final = ("world", "projections", "authority", "host")  # installed beside this one
_HOME: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))


def _refuse_clashes() -> None:
    """Raise ``ImportError`` where a package of this project is shadowed, with the file that must be renamed."""
    for name in _PACKAGES:
        rendered = _clash(name, _resolved(name))
        if rendered is not None:
            raise ImportError(rendered, name=name)


def _resolved(name: str) -> ModuleSpec | None:
    """Return where ``import name`` leads; for a module that is imported already, its own file."""
    known = sys.modules.get(name)
    if known is not None:
        return getattr(known, "__spec__", None)
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find is None else find(name, None)
        if spec is not None:
            return spec
    return None


def _clash(name: str, spec: ModuleSpec | None) -> str | None:
    """Return what is wrong where a name leads to another place than beside this package, or None."""
    if spec is None or spec.origin is None or not spec.has_location:  # none, or a folder without modules
        return None
    origin = os.path.realpath(spec.origin)
    if os.path.dirname(os.path.dirname(origin)) == _HOME:
        return None
    shown = os.path.dirname(spec.origin) if spec.submodule_search_locations is not None else spec.origin
    shown = os.path.abspath(shown)
    return (
        f"{shown} has the name of the package {name!r} of World Protocol and would be imported in its place. Rename "
        f"{os.path.basename(shown)}; the names {', '.join(_PACKAGES)} and worldprotocol are taken."
    )


_refuse_clashes()

_HOMES = {
    "authority": ("Approve", "Escalate", "Narrow", "Policy", "Reject", "rule"),
    "host": ("EffectResult", "EffectFailure", "external", "handler"),
    "projections": ("NoIntent", "ProjectionRequest", "Select", "projection"),
    "world.core": ("ActionContext", "ActionSteps", "Domain", "EffectType", "Patch", "effect", "merge", "set_", "unset"),
    "world.errors": (
        "DamagedLogError",
        "DivergenceError",
        "LogBusyError",
        "RefusedError",
        "ScopeViolationError",
        "StorageFullError",
        "WaitTimeoutError",
        "WorldProtocolError",
    ),
    "world.model.intent": ("IntentBody", "IntentInstance", "IntentScope"),
    "world.state.ports": ("Case",),
    "world.model.source": ("SourceEvent",),
    "worldprotocol.api.executing.worker": ("Worker",),
    "worldprotocol.api.asynchronous.realm": ("AsyncRealm",),
    "worldprotocol.api.realm": ("Realm",),
    "worldprotocol.api.requests": ("ProjectionOutcome",),
    "worldprotocol.directory.directory": ("RealmDirectory",),
    "worldprotocol.runs.governed": ("RunOptions",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ActionContext",
    "ActionSteps",
    "Approve",
    "AsyncRealm",
    "Case",
    "DamagedLogError",
    "DivergenceError",
    "Domain",
    "EffectFailure",
    "EffectResult",
    "EffectType",
    "Escalate",
    "IntentBody",
    "IntentInstance",
    "IntentScope",
    "LogBusyError",
    "Narrow",
    "NoIntent",
    "Patch",
    "Policy",
    "ProjectionOutcome",
    "ProjectionRequest",
    "Realm",
    "RealmDirectory",
    "RefusedError",
    "Reject",
    "RunOptions",
    "ScopeViolationError",
    "Select",
    "SourceEvent",
    "StorageFullError",
    "WaitTimeoutError",
    "Worker",
    "WorldProtocolError",
    "effect",
    "external",
    "handler",
    "merge",
    "projection",
    "rule",
    "set_",
    "unset",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
