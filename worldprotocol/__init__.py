"""World Protocol: the roof over the rooms, and what people import and run.

    from worldprotocol import Domain, World, set_

Everything here is imported when it is first used, so that the command line starts quickly.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from worldprotocol.name_clashes import refuse_clashes

if TYPE_CHECKING:
    from authority import Approve, Escalate, Narrow, Policy, Reject, rule
    from host import Done, Failed, handler
    from projections import Nothing, ProjectionRequest, Selected, projection
    from world.core import ActionContext, Domain, effect, merge, set_, unset
    from world.errors import (
        DamagedLog,
        Diverged,
        LogBusy,
        Refused,
        ScopeViolationError,
        StorageFull,
        WorldProtocolError,
    )
    from world.intent import IntentBody, IntentInstance, IntentScope
    from world.ports import Case
    from world.source import SourceEvent
    from worldprotocol.facade import World
    from worldprotocol.requests import Received
    from worldprotocol.runs.governed import Wishes

refuse_clashes()

_HOMES = {
    "authority": ("Approve", "Escalate", "Narrow", "Policy", "Reject", "rule"),
    "host": ("Done", "Failed", "handler"),
    "projections": ("Nothing", "ProjectionRequest", "Selected", "projection"),
    "world.core": ("ActionContext", "Domain", "effect", "merge", "set_", "unset"),
    "world.errors": (
        "DamagedLog",
        "Diverged",
        "LogBusy",
        "Refused",
        "ScopeViolationError",
        "StorageFull",
        "WorldProtocolError",
    ),
    "world.intent": ("IntentBody", "IntentInstance", "IntentScope"),
    "world.ports": ("Case",),
    "world.source": ("SourceEvent",),
    "worldprotocol.facade": ("World",),
    "worldprotocol.requests": ("Received",),
    "worldprotocol.runs.governed": ("Wishes",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "ActionContext",
    "Approve",
    "Case",
    "DamagedLog",
    "Diverged",
    "Domain",
    "Done",
    "Escalate",
    "Failed",
    "IntentBody",
    "IntentInstance",
    "IntentScope",
    "LogBusy",
    "Narrow",
    "Nothing",
    "Policy",
    "ProjectionRequest",
    "Received",
    "Refused",
    "Reject",
    "ScopeViolationError",
    "Selected",
    "SourceEvent",
    "StorageFull",
    "Wishes",
    "World",
    "WorldProtocolError",
    "effect",
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
