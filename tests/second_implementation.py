"""A second implementation of replay and verification, written from docs/log-format.md alone, with nothing of ours.

``python tests/second_implementation.py EXPORT...`` prints for each exported log whether it is sound, its tree heads,
worlds, branches and their data; or the first bad event. Only the standard library is used.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

DEEPEST = 200
INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
WAYS = {
    "proposal.judged": ({"submitted", "evaluating"}, "evaluating"),
    "proposal.superseded": ({"submitted", "evaluating"}, "superseded"),
    "execution.started": ({"approved", "executing"}, "executing"),
    "proposal.completed": ({"executing"}, "completed"),
    "proposal.failed": ({"executing"}, "failed"),
}
ENDS = {"rejected", "superseded", "completed", "failed"}
REALM = {"enforcement.chosen", "domain.adopted", "actor.registered", "actor.bound", "shadow.configured", "log.founded"}


class Bad(Exception):
    """Something is not as the document says."""


# Canonical form


def canonical(value: Any, depth: int = 0) -> str:
    """Return the canonical text of a value."""
    if depth > DEEPEST or (depth == DEEPEST and isinstance(value, (dict, list))):
        raise Bad("nested too deep")
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return text_of(value)
        case int() | float():
            return number_of(value)
        case list():
            return "[" + ",".join(canonical(item, depth + 1) for item in value) + "]"
        case dict():
            names = sorted(value, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
            members = (f"{text_of(name)}:{canonical(value[name], depth + 1)}" for name in names)
            return "{" + ",".join(members) + "}"
    raise Bad(f"no JSON: {value!r}")


def text_of(text: str) -> str:
    """Return a string as it stands in canonical text."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise Bad("a lone surrogate")
    return '"' + "".join(ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def number_of(number: int | float) -> str:
    """Return a number as ECMAScript prints it."""
    try:
        double = float(number)
    except OverflowError:
        raise Bad("an integer beyond all doubles") from None
    if double != double or abs(double) == float("inf"):
        raise Bad("no number")
    if double == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(double)).normalize().as_tuple()
    shown = "".join(map(str, digits))
    point = len(shown) + int(exponent)
    if 0 < point <= 21:
        text = shown[:point].ljust(point, "0") + ("." + shown[point:] if len(shown) > point else "")
    elif -6 < point <= 0:
        text = "0." + "0" * -point + shown
    else:
        text = shown[0] + ("." + shown[1:] if len(shown) > 1 else "") + f"e{point - 1:+d}"
    if isinstance(number, int) and abs(number) >= 2**53 and text != str(abs(number)):
        raise Bad("an integer that no double prints")
    return "-" * sign + text


def read(text: str) -> Any:
    """Read JSON in which no name stands twice in one object."""

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Bad("a name stands twice")
        return dict(pairs)

    def refuse(name: str) -> Any:
        raise Bad(f"{name} is no number")

    try:
        return json.loads(text, object_pairs_hook=members, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise Bad(f"no JSON: {error}") from None


# Hashes


def hash_of(value: Any) -> str:
    """Return H(value)."""
    return sha256(canonical(value).encode()).hexdigest()


def leaf_of(event: Mapping[str, Any]) -> bytes:
    """Return the leaf hash of an event."""
    names = ("schemaVersion", "state", "stream", "topic", "version")
    return sha256(b"\0" + canonical({name: event[name] for name in names}).encode()).digest()


class Tree:
    """A tree that grows: the roots of its complete subtrees, largest first, each with its size."""

    def __init__(self, leaves: Iterable[bytes] = ()) -> None:
        """Begin with leaves."""
        self.size = 0
        self.parts: list[tuple[int, bytes]] = []
        for leaf in leaves:
            self.add(leaf)

    def add(self, leaf: bytes) -> None:
        """Put a leaf at the end."""
        self.size, part = self.size + 1, (1, leaf)
        while self.parts and self.parts[-1][0] == part[0]:
            part = (2 * part[0], sha256(b"\1" + self.parts.pop()[1] + part[1]).digest())
        self.parts.append(part)

    def root(self) -> str:
        """Return the root in hex."""
        if not self.parts:
            return sha256(b"").hexdigest()
        root = self.parts[-1][1]
        for _, left in self.parts[-2::-1]:
            root = sha256(b"\1" + left + root).digest()
        return root.hex()


def without_dollar(members: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out members whose names begin with a dollar sign."""
    return {name: value for name, value in members.items() if not name.startswith("$")}


def schema_hash(schema: Mapping[str, Any]) -> str:
    """Return the schemaHash of a schema."""
    kept = {name: value for name, value in schema.items() if name != "hash"}
    if isinstance(kept.get("state"), dict) and isinstance(kept["state"].get("fields"), dict):
        kept["state"] = kept["state"] | {"fields": without_dollar(kept["state"]["fields"])}
    return hash_of(kept)


def snapshot_hash(data: Mapping[str, Any], error: Mapping[str, Any] | None) -> str:
    """Return the snapshotHash of a world."""
    errors = []
    if error is not None:
        source = error.get("source") or {}
        told = {"code": error["code"], "source": {name: source.get(name) for name in ("actionId", "nodePath")}}
        errors = [told if error.get("context") is None else told | {"context": error["context"]}]
    system = {"errors": errors, "pendingDigest": "empty", "terminalStatus": "failed" if errors else "completed"}
    return hash_of({"data": without_dollar(data), "system": system})


def world_ids(
    schema: str, data: Mapping[str, Any], error: Mapping[str, Any] | None, parent: str | None
) -> dict[str, str]:
    """Return the three hashes of a world."""
    snapshot = snapshot_hash(data, error)
    return {
        "snapshotHash": snapshot,
        "contentId": hash_of({"schemaHash": schema, "snapshotHash": snapshot}),
        "worldId": hash_of({"parentWorldId": parent, "schemaHash": schema, "snapshotHash": snapshot}),
    }


def intent_key(schema: str, body: Mapping[str, Any]) -> str:
    """Return the intentKey of an intent's body."""
    parts = schema, body["type"], canonical(body.get("input")), canonical(body.get("scopeProposal"))
    return sha256(":".join(parts).encode()).hexdigest()


# Patches


def names_of(path: str) -> list[str]:
    """Split a path."""
    names, at = [""], 0
    while at < len(path):
        char = path[at]
        if char == "\\" and path[at + 1 : at + 2] in (".", "\\"):
            at, char = at + 1, path[at + 1]
        elif char == ".":
            names.append("")
            char = ""
        names[-1] += char
        at += 1
    return names if path else []


def patched(data: Any, patch: Mapping[str, Any]) -> Any:
    """Return the data after a patch; the old data stays as it is."""
    names, operation = names_of(patch["path"]), patch["op"]
    if operation == "unset":
        if not names:
            raise Bad("the data cannot be unset")
        return removed(data, names)
    value = patch["value"]
    if operation == "merge":
        if value is None:
            return data
        target = looked_up(data, names)
        if not isinstance(value, dict) or not isinstance(target, dict | None):
            raise Bad("merge needs objects")
        value = (target or {}) | value
    if not names and not isinstance(value, dict):
        raise Bad("the data stays an object")
    return put(data, names, value)


def looked_up(node: Any, names: list[str]) -> Any:
    """Return what stands at a path, None where nothing does."""
    for name in names:
        if isinstance(node, dict):
            node = node.get(name)
        elif isinstance(node, list) and INDEX.fullmatch(name) and int(name) < len(node):
            node = node[int(name)]
        else:
            return None
    return node


def put(node: Any, names: list[str], value: Any) -> Any:
    """Return a copy with a value at a path."""
    if not names:
        return value
    name, rest = names[0], names[1:]
    if isinstance(node, dict) or node is None:
        return {**(node or {}), name: put((node or {}).get(name), rest, value)}
    if isinstance(node, list) and INDEX.fullmatch(name):
        index = int(name)
        if index < len(node):
            return [*node[:index], put(node[index], rest, value), *node[index + 1 :]]
        if index == len(node) and not rest:
            return [*node, value]
    raise Bad("a patch does not fit the data")


def removed(node: Any, names: list[str]) -> Any:
    """Return a copy without what stands at a path."""
    name, rest = names[0], names[1:]
    if isinstance(node, dict) and name in node:
        if rest:
            return node | {name: removed(node[name], rest)}
        return {key: value for key, value in node.items() if key != name}
    if isinstance(node, list):
        if not INDEX.fullmatch(name):
            raise Bad("no index")
        index = int(name)
        if index < len(node):
            return [*node[:index], *([removed(node[index], rest)] if rest else []), *node[index + 1 :]]
    return node


# Replay and verification


class Replay:
    """The fold of the events of one log."""

    def __init__(self) -> None:
        """Begin before the first event."""
        self.worlds: dict[str, tuple[str | None, str, int, Any]] = {}  # parent, outcome, height, data
        self.branches: dict[str, dict[str, str]] = {}
        self.active, self.epoch, self.schema = "", 0, ""
        self.proposals: dict[str, str] = {}
        self.intents: dict[str, str] = {}
        self.streams: Counter[str] = Counter()

    def take(self, event: Mapping[str, Any]) -> None:
        """Check an event and fold it."""
        topic, state, stream = event["topic"], event["state"], event["stream"]
        self.streams[stream] += 1
        if self.streams[stream] != event["version"]:
            raise Bad("out of order in its stream")
        if event["schemaVersion"] != 1:
            raise Bad("a later version")
        if topic == "log.founded" and state.get("logic"):
            raise Bad("another logic")
        if topic in REALM and stream != "realm":
            raise Bad("in a wrong stream")
        if topic.startswith(("proposal.", "human.", "effect.", "execution.")) and stream != state["proposalId"]:
            raise Bad("in a wrong stream")
        step = getattr(self, "on_" + topic.replace(".", "_"), None)
        if step is not None:
            step(state)
        if topic in WAYS:
            self.go(state["proposalId"], *WAYS[topic])
        elif topic.startswith("effect.") and topic != "effect.dropped":
            self.go(state["proposalId"], {"executing"}, "executing")
        elif topic.startswith("human."):
            self.go(state["proposalId"], {"evaluating"}, "evaluating")

    def go(self, proposal: str, before: set[str], after: str) -> None:
        """Let a proposal go from one of some states to another."""
        if self.proposals.get(proposal) not in before:
            raise Bad(f"a proposal that is {self.proposals.get(proposal)} cannot become {after}")
        self.proposals[proposal] = after

    def on_domain_adopted(self, state: Mapping[str, Any]) -> None:
        """Take a schema into force."""
        if schema_hash(state["schema"]) != state["schemaHash"] or state.get("previous") not in (None, self.schema):
            raise Bad("a wrong schemaHash")
        self.schema = state["schemaHash"]

    def on_world_sealed(self, state: Mapping[str, Any]) -> None:
        """Rebuild a world and compare its hashes."""
        parent, height = state["parent"], 0
        if parent is None:
            data = state["data"]
        elif parent in self.worlds:
            data, height = self.worlds[parent][3], self.worlds[parent][2] + 1
        else:
            raise Bad("an unknown parent")
        for patch in state["patches"]:
            data = patched(data, patch)
        ids = world_ids(state["schemaHash"], data, state.get("error"), parent)
        if any(state[name] != value for name, value in ids.items()):
            raise Bad("a wrong hash of a world")
        outcome = "completed" if state.get("error") is None else "failed"
        if (state["height"], state["outcome"], state["schemaHash"]) != (height, outcome, self.schema):
            raise Bad("a wrong height, outcome or schema")
        if state["worldId"] in self.worlds or (outcome == "failed" and state["patches"]):
            raise Bad("a world twice, or a failed one with patches")
        self.worlds[state["worldId"]] = parent, outcome, height, data
        if state["branch"] in self.branches:
            self.branches[state["branch"]]["tip"] = state["worldId"]

    def on_branch_created(self, state: Mapping[str, Any]) -> None:
        """Make a branch."""
        if state["branch"] in self.branches or state["worldId"] not in self.worlds:
            raise Bad("a branch that exists, or at an unknown world")
        self.branches[state["branch"]] = {"head": state["worldId"], "tip": state["worldId"]}
        self.active = self.active or state["branch"]

    def on_branch_switched(self, state: Mapping[str, Any]) -> None:
        """Make another branch the active one."""
        if state["branch"] not in self.branches or state["epoch"] != self.epoch + 1:
            raise Bad("a wrong branch or epoch")
        self.active, self.epoch = state["branch"], state["epoch"]

    def on_proposal_submitted(self, state: Mapping[str, Any]) -> None:
        """Take a proposal in."""
        intent, name = state["intent"], state["proposalId"]
        if name in self.proposals or intent_key(state["schemaHash"], intent["body"]) != intent["intentKey"]:
            raise Bad("a proposal twice, or a wrong intentKey")
        if self.branches[state["branch"]]["head"] != state["baseWorld"] or state["epoch"] != self.epoch:
            raise Bad("a wrong base or epoch")
        self.proposals[name], self.intents[name] = "submitted", intent["intentId"]

    def on_decision_made(self, state: Mapping[str, Any]) -> None:
        """Decide on a proposal."""
        decision = state["decision"]["decision"]
        before = {"evaluating"} if decision == "approved" else {"submitted", "evaluating"}
        self.go(state["proposalId"], before, decision)

    def on_effect_requested(self, state: Mapping[str, Any]) -> None:
        """Compare the id of an effect."""
        wanted = state["requirement"]
        told = {
            "schemaHash": self.schema,
            "intentId": self.intents[state["proposalId"]],
            "actionId": wanted["actionId"],
            "nodePath": wanted["nodePath"],
            "effect": {"name": wanted["type"], "args": wanted["params"]},
        }
        if hash_of(told) != wanted["id"]:
            raise Bad("a wrong id of a requirement")

    def on_proposal_completed(self, state: Mapping[str, Any]) -> None:
        """Move a branch."""
        self.on_proposal_failed(state, "completed")
        self.branches[state["branch"]]["head"] = state["worldId"]

    def on_proposal_failed(self, state: Mapping[str, Any], outcome: str = "failed") -> None:
        """Move the tip of a branch."""
        branch = self.branches[state["branch"]]
        if branch["head"] != state["parent"] or self.worlds[state["worldId"]][:2] != (state["parent"], outcome):
            raise Bad("a wrong parent or world")
        branch["tip"] = state["worldId"]

    def on_key_registered(self, state: Mapping[str, Any]) -> None:
        """Look at a key."""
        if len(base64.b64decode(state["publicKey"])) != 32:
            raise Bad("no key")


def verify(lines: Iterable[str]) -> dict[str, Any]:
    """Return what an exported log comes to, or its first bad event."""
    tree, replay, heads, position = Tree(), Replay(), list[list[Any]](), 0
    try:
        for number, line in enumerate(lines):
            told = read(line)
            if canonical(told) != line.rstrip("\n"):
                position += "position" in told
                raise Bad("not canonical")
            if number == 0:
                if (told["worldProtocol"], told["format"]) != ("log", 1):
                    raise Bad("no export")
            elif "head" in told:
                heads.append([told["head"]["size"], told["head"]["root"]])
                if heads[-1] != [tree.size, tree.root()]:
                    raise Bad("a wrong tree head")
            else:
                position += 1
                leaf = leaf_of(told)
                if told["position"] != position or leaf.hex() != told["leaf"]:
                    raise Bad("a wrong position or leaf")
                tree.add(leaf)
                replay.take(told)
        if not heads or heads[-1][0] != tree.size:
            raise Bad("cut off")
    except (Bad, KeyError, TypeError, AttributeError, ValueError) as error:
        return {"sound": False, "firstBad": position, "why": str(error)}
    ended = Counter(status for status in replay.proposals.values() if status in ENDS)
    return {
        "sound": True,
        "heads": heads,
        "worlds": list(replay.worlds),
        "branches": {name: one | {"data": replay.worlds[one["head"]][3]} for name, one in replay.branches.items()},
        "active": replay.active,
        "epoch": replay.epoch,
        "statuses": dict(sorted(ended.items())),
    }


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a file; what is no UTF-8 is no line."""
    with path.open("rb") as file:
        for line in file:
            yield line.decode("utf-8", "surrogateescape")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        sys.stdout.write(canonical({"log": name, **verify(lines_of(Path(name)))}) + "\n")
