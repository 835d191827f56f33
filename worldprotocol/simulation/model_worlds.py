"""Independent model of worlds: plain data, patches and recomputed hashes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from worldprotocol.simulation.found import hold
from worldprotocol.simulation.model_log import digest

__all__ = ["WorldModel", "covers", "names_of", "within"]

_DOT = re.compile(r"(?<!\\)\.")


@dataclass(slots=True)
class _World:
    data: Any
    parent: str | None
    height: int
    outcome: str
    content: str
    tally: Mapping[str, int]


@dataclass(slots=True)
class WorldModel:
    """All worlds and branches.

    Args:
        adds: what a completed action adds to numbers, by path; see ``Scenario``.
    """

    adds: Callable[[str, Any], Mapping[str, int]] | None = None
    schema: str = ""
    genesis: Any = None
    worlds: dict[str, _World] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    active: str = ""
    epoch: int = 0

    def seal(self, event: Mapping[str, Any], proposal: Mapping[str, Any] | None) -> None:
        """Take in a sealed world.

        Args:
            event: the event.
            proposal: ``{"type", "input", "scopes"}`` of the proposal that made it; None for genesis.
        """
        parent = event["parent"]
        hold("WP-lineage", "a world without a maker", (proposal is None) == (parent is None) == (not self.worlds))
        hold("WP-schema", "a world of another schema", event["schemaHash"] == self.schema)
        if proposal is None:
            world = _World(event["data"], None, 0, "completed", "", {})
            self.genesis = event["data"]
        else:
            world = self._child(event, parent, proposal)
        system: dict[str, Any] = {"terminalStatus": world.outcome, "errors": [], "pendingDigest": "empty"}
        if event.get("error") is not None:
            system["errors"] = [_signature(event["error"])]
        data = {key: value for key, value in world.data.items() if not key.startswith("$")}
        snapshot = digest({"data": data, "system": system})
        hold("WP-hash", f"world {event['worldId']} has another snapshotHash", event["snapshotHash"] == snapshot)
        world.content = digest({"schemaHash": self.schema, "snapshotHash": snapshot})
        hold("WP-world", f"world {event['worldId']} has another contentId", event["contentId"] == world.content)
        name = digest({"schemaHash": self.schema, "snapshotHash": snapshot, "parentWorldId": parent})
        hold("WP-world", f"world {event['worldId']} should have the id {name}", event["worldId"] == name)
        hold("WP-world", "a world has another height", event["height"] == world.height)
        self.worlds.setdefault(name, world)

    def _child(self, event: Mapping[str, Any], parent: str, proposal: Mapping[str, Any]) -> _World:
        known = self.worlds.get(parent)
        hold("WP-lineage", f"the parent {parent} does not exist", known is not None)
        hold("WP-lineage", f"{parent} is not the head of {event['branch']}", self.heads[event["branch"]] == parent)
        assert known is not None
        outcome, failed = event["outcome"], event.get("error") is not None
        hold("WP-outcome", "the outcome is not derived from the error", (outcome == "failed") == failed)
        hold("WP-exec", "a failed world changed something", not (failed and event["patches"]))
        data, tally = known.data, known.tally
        for patch in event["patches"]:
            for scope in proposal["scopes"]:
                for path in _touched(patch):
                    hold("INT-13.5", f"{path} is outside of {scope}", within(scope, path))
            data = _patched(data, names_of(patch["path"]), patch)
        if outcome == "completed" and self.adds is not None:
            tally = self._counted(proposal["type"], proposal["input"], data, tally)
        return _World(data, parent, known.height + 1, outcome, "", tally)

    def _counted(self, action: str, given: Any, data: Any, tally: Mapping[str, int]) -> Mapping[str, int]:
        """Add the action's increments and compare the numbers, to detect lost and doubled updates."""
        assert self.adds is not None
        added = self.adds(action, given)
        tally = {**tally, **{path: tally.get(path, 0) + by for path, by in added.items()}}
        for path, sum_ in tally.items():
            found, first = _number(data, path), _number(self.genesis, path)
            what = f"{path} is {found}, and what was completed adds up to {first + sum_}"
            hold("WP-exec", what, found == first + sum_)
        return tally

    def meet(self, rendered: Mapping[str, Any], proposal: Mapping[str, Any]) -> None:
        """Apply an execution that produced an existing world: equal content on the same parent."""
        known = self.worlds.get(rendered["worldId"])
        is_same = known is not None and known.parent == rendered["parent"]
        hold(
            "WP-world",
            f"{rendered['proposalId']} ends in {rendered['worldId']}, which is no child of its head",
            is_same,
        )
        assert known is not None
        if known.outcome == "completed" and self.adds is not None:
            tally = self.worlds[rendered["parent"]].tally
            self._counted(proposal["type"], proposal.get("input"), known.data, tally)

    def create(self, rendered: Mapping[str, Any]) -> None:
        """Take in a new branch."""
        world = self.worlds.get(rendered["worldId"])
        hold("WP-lineage", f"branch {rendered['branch']} is there already", rendered["branch"] not in self.heads)
        hold("WP-base", "a branch begins nowhere, or at a failure", world is not None and world.outcome == "completed")
        self.heads[rendered["branch"]] = rendered["worldId"]
        self.active = self.active or rendered["branch"]

    def switch(self, rendered: Mapping[str, Any]) -> None:
        """Take in another active branch."""
        hold("WP-epoch", "the epoch is raised by one", rendered["epoch"] == self.epoch + 1)
        hold("WP-epoch", "there is no such branch", rendered["branch"] in self.heads)
        self.active, self.epoch = rendered["branch"], rendered["epoch"]

    def move(self, rendered: Mapping[str, Any], *, completed: bool) -> None:
        """Take in how an execution ended."""
        world = self.worlds[rendered["worldId"]]
        hold("WP-lineage", "the head moves on from another world", self.heads[rendered["branch"]] == rendered["parent"])
        hold(
            "WP-lineage", "an execution ends in a world of another outcome", (world.outcome == "completed") == completed
        )
        if completed:
            self.heads[rendered["branch"]] = rendered["worldId"]


def _signature(error: Mapping[str, Any]) -> dict[str, Any]:
    source = error.get("source") or {}
    kept = {"code": error["code"], "source": {name: source.get(name) for name in ("actionId", "nodePath")}}
    return kept if error.get("context") is None else {**kept, "context": error["context"]}


def _number(data: Any, path: str) -> int:
    for name in names_of(path):
        data = data[name]
    number: int = data
    return number


def names_of(path: str) -> list[str]:
    """Return the names of a dotted path; ``data.`` before it is left out of patterns."""
    return [part.replace("\\.", ".") for part in _DOT.split(path)] if path else []


def within(scope: Sequence[str], path: str) -> bool:
    """Return whether a pattern covers a path; a final ``*`` covers descendants, others one name."""
    names = names_of(path)
    for pattern in scope:
        parts = names_of(pattern)
        parts = parts[1:] if parts[:1] == ["data"] and len(parts) > 1 else parts
        if len(names) >= len(parts) and all(part in ("*", name) for part, name in zip(parts, names, strict=False)):
            return True
    return False


def covers(scope: Sequence[str], pattern: str) -> bool:
    """Return whether another pattern covers a pattern."""
    return pattern in scope or within(scope, pattern.removeprefix("data.").removesuffix(".*"))


def _touched(patch: Mapping[str, Any]) -> list[str]:
    if patch["op"] != "merge":
        return [patch["path"]]
    return [".".join(filter(None, (patch["path"], name.replace(".", "\\.")))) for name in patch["value"]]


def _patched(data: Any, names: list[str], patch: Mapping[str, Any]) -> Any:
    """Return the data with one patch applied; what it does not touch is shared."""
    if not names:
        return {**data, **patch["value"]} if patch["op"] == "merge" else patch["value"]
    name, rest = names[0], names[1:]
    if isinstance(data, list):
        at = int(name)
        if not rest and patch["op"] == "unset":
            return data[:at] + data[at + 1 :]
        return [*data[:at], _patched(data[at] if at < len(data) else {}, rest, patch), *data[at + 1 :]]
    if not rest and patch["op"] == "unset":
        return {key: value for key, value in data.items() if key != name}
    return {**data, name: _patched(data.get(name, {}), rest, patch)}
