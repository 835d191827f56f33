"""Pins of MCP servers: the definitions of their tools that a person has agreed to, and what differs from them.

A definition is what a server lists about a tool and an agent reads: names, description, schemas and annotations. Pins
are state of the realm (``mcp``), which the action ``mcp.pin`` changes: judged like every intent, recorded with who
agreed, and not to be edited by the agent whose proxy reads them. Other members of a listed tool, such as icons, are not
compared. Source: docs/agents.md.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes

__all__ = ["PIN", "Pins", "Status", "definition_of", "differences", "pins_in", "statuses"]

PIN: Final = "mcp.pin"
"""The action that pins the tools of a server."""

PLACE: Final = "mcp"
MEMBERS: Final = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")

Status = Literal["pinned", "changed", "new"]


def definition_of(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the definition of a tool as a server lists it."""
    return {name: tool[name] for name in MEMBERS if tool.get(name) is not None}


def statuses(tools: Sequence[Mapping[str, Any]], pins: Pins | None) -> dict[str, Status]:
    """Return which tools of a list may be called, by name; one that is listed twice has changed.

    Args:
        tools: the tools, as a server lists them.
        pins: its pins; None where it has none.
    """
    found: dict[str, Status] = {}
    for tool in tools:
        name = str(tool.get("name"))
        found[name] = "changed" if name in found else "new" if pins is None else pins.status(tool)
    return found


def pins_in(data: Any, server: str) -> Any:
    """Return the pins of a server in the data of a realm, JSON; None where it has none."""
    place = data.get(PLACE) if isinstance(data, Mapping) else None
    return place.get(server) if isinstance(place, Mapping) else None


@dataclass(frozen=True, slots=True)
class Pins:
    """The pins of one server.

    Args:
        tools: the pinned definitions, by name.
        instructions: the pinned instructions of the server; None where it gave none.
    """

    tools: Mapping[str, Any]
    instructions: str | None = None

    @classmethod
    def listed(cls, tools: Iterable[Mapping[str, Any]], instructions: str | None) -> Pins:
        """Return the pins that agree with what a server lists now."""
        return cls({str(tool.get("name")): definition_of(tool) for tool in tools}, instructions)

    @classmethod
    def read(cls, pins: Any) -> Pins | None:
        """Return pins from their JSON; None where there are none."""
        if not isinstance(pins, Mapping) or not isinstance(pins.get("tools"), Mapping):
            return None
        instructions = pins.get("instructions")
        return cls(pins["tools"], instructions if isinstance(instructions, str) else None)

    def wire(self) -> dict[str, Any]:
        """Return them as JSON, the members of the input of ``mcp.pin`` besides the server."""
        return {"instructions": self.instructions, "tools": dict(self.tools)}

    def status(self, tool: Mapping[str, Any]) -> Status:
        """Return whether a tool is as it was pinned."""
        name = tool.get("name")
        if not isinstance(name, str) or name not in self.tools:
            return "new"
        return "pinned" if _is_same(self.tools[name], definition_of(tool)) else "changed"

    def is_repeatable(self, name: str) -> bool:
        """Return whether the pinned annotations of a tool say that a repetition is harmless."""
        tool = self.tools.get(name)
        notes = tool.get("annotations") if isinstance(tool, Mapping) else None
        hints = [notes.get(hint) for hint in ("readOnlyHint", "idempotentHint")] if isinstance(notes, Mapping) else []
        return any(hint is True for hint in hints)


def differences(pinned: Pins | None, now: Pins) -> list[str]:
    """Return what differs between pins and what a server lists now, as lines of a unified diff; empty where nothing.

    Args:
        pinned: the pins; None is none.
        now: what the server lists.
    """
    earlier = pinned or Pins({})
    lines = _diff("instructions", earlier.instructions, now.instructions)
    for name in sorted({*earlier.tools, *now.tools}):
        lines += _diff(f"tool {json.dumps(name)}", earlier.tools.get(name), now.tools.get(name))
    return lines


def _diff(what: str, before: Any, after: Any) -> list[str]:
    if _is_same(before, after):
        return []
    label = "added" if before is None else "removed" if after is None else "changed"
    return [f"{what}: {label}", *list(difflib.unified_diff(_lines(before), _lines(after), lineterm="", n=2))[2:]]


def _lines(value: Any) -> list[str]:
    """Return a value as lines of JSON in ASCII, so that invisible characters are seen."""
    return [] if value is None else json.dumps(value, indent=2, sort_keys=True).splitlines()


def _is_same(one: Any, other: Any) -> bool:
    """Return whether two values are the same JSON; what has no canonical form is not the same as anything."""
    try:
        return canonical_bytes(one) == canonical_bytes(other)
    except RefusedError:
        return False
