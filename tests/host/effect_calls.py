"""Calls of built-in effects as a host makes them, without a host around."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from host import EffectCallInfo, EffectHandler
from host.builtin import BUILTIN
from host.workspace import Workspace
from world.model.immutable_json import freeze

HANDLERS: dict[str, EffectHandler] = {given.type: given for given in BUILTIN}


def call_of(effect: str, workspace: Workspace | None = None, key: str = "key", **told: Any) -> EffectCallInfo:
    """Return what a handler is told."""

    def look() -> Any:
        raise AssertionError("no built-in effect looks at the state")

    return EffectCallInfo(
        effect_type=effect,
        idempotency_key=key,
        intent_id="intent-1",
        proposal_id="proposal-1",
        now=1_700_000_000_000,
        time_limit_ms=30_000,
        look=look,
        workspace=workspace,
        **told,
    )


def make(effect: str, params: Any, workspace: Workspace | None = None, key: str = "key", **told: Any) -> Any:
    """Make one effect and return its answer."""
    return HANDLERS[effect](freeze(params), call_of(effect, workspace, key, **told))


class Files:
    """A workspace in a temporary folder, whose effects all have keys of their own unless one is given."""

    def __init__(self, root: Path) -> None:
        root.mkdir(exist_ok=True)
        self.root = root
        self.workspace = Workspace(root)
        self._made = 0

    def make(self, effect: str, key: str | None = None, told: dict[str, Any] | None = None, **params: Any) -> Any:
        self._made += 1
        given = {name.rstrip("_"): value for name, value in params.items()}
        return make(effect, given, self.workspace, f"key-{self._made}" if key is None else key, **(told or {}))
