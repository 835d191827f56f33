"""Forms and hashes of a stored log, from docs/reference/log-format.md alone: see ``tests.second_implementation``.

The tables of events and their parts are read from the page itself, so that they say enough.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "log-format.md"
DEEPEST = 200
INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


class Bad(Exception):
    """Something is not as the document says."""


def must(holds: object, why: str) -> None:
    """Go on where something holds."""
    if not holds:
        raise Bad(why)


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
    must(("value" in patch) is (operation != "unset"), "a value that is missing, or too much")
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


def covers(allowed: Iterable[str], patch: Mapping[str, Any], rules: int) -> bool:
    """Tell whether everything that a patch changes lies within an approved scope."""
    path: list[str | None] = [*names_of(patch["path"])]
    places = [path]
    if patch["op"] == "merge" and patch["value"]:
        places = [[*path, name] for name in patch["value"]]
    elif patch["op"] == "unset" and path and INDEX.fullmatch(path[-1] or ""):
        places = [[*path[:-1], None]]  # any element: those behind it move
    patterns = [pattern_of(pattern, rules) for pattern in allowed]
    return all(any(within(place, names) for names in patterns) for place in places)


def pattern_of(text: str, rules: int) -> list[str | None]:
    """Return the names of a scope pattern below the data; None is a star."""
    names = names_of(text)
    prefixed = names[:1] == ["data"] and (rules == 1 or len(names) > 1)
    if rules == 1:
        stars: list[str | None] = [None if one == "*" else "*" if one == "\\*" else one for one in names]
    else:
        written = raw_segments(text)
        stars = [None if raw == "*" else "*" if raw == "\\*" else one for raw, one in zip(written, names, strict=True)]
    return stars[1:] if prefixed else stars


def raw_segments(text: str) -> list[str]:
    """Return the segments of a pattern as they are written, with their escapes."""
    segments, at = [""], 0
    while at < len(text):
        size = 2 if text[at] == "\\" and text[at + 1 : at + 2] in ("\\", ".") else 1
        piece = text[at : at + size]
        if piece == ".":
            segments.append("")
        else:
            segments[-1] += piece
        at += size
    return segments


def within(place: list[str | None], pattern: list[str | None]) -> bool:
    """Tell whether a place lies at or below what a pattern names."""
    fit = (wanted is None or name == wanted for wanted, name in zip(pattern, place, strict=False))
    return len(place) >= len(pattern) and all(fit)


# Forms


Fields = dict[str, tuple[bool, str]]
"""By name: whether it may be left out, and its type."""


def rows_of(name: str) -> list[list[str]]:
    """Return the rows of a table of the page, each as its cells."""
    table = PAGE.read_text(encoding="utf-8").split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]
    return [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]


def fields_of(cell: str) -> Fields:
    """Read a list of fields or members."""
    found = re.findall(r"`(\w+)(\??)` (.+?)(?=, `\w+\??` |$)", cell)
    return {name: (mark == "?", kind) for name, mark, kind in found}


TOPICS = {cells[0].strip(" `"): (cells[1].strip("`"), fields_of(cells[2])) for cells in rows_of("topics")}
PARTS = {cells[0].strip(): (fields_of(cells[1]), "closed" in cells[2]) for cells in rows_of("parts")}


def fits(value: Any, kind: str) -> bool:
    """Tell whether a value is of a type of the tables."""
    if kind.endswith(" or null"):
        return value is None or fits(value, kind.removesuffix(" or null"))
    if kind.startswith("list of "):
        return isinstance(value, list) and all(fits(one, kind.removeprefix("list of ")) for one in value)
    if kind.startswith("object of ("):
        inner = kind.removeprefix("object of (").removesuffix(")")
        return isinstance(value, dict) and all(fits(one, inner) for one in value.values())
    if kind.startswith("`"):
        return value in re.findall("`(\\w+)`", kind)
    if kind.startswith("JSON object with "):
        names = re.findall("`(\\w+)`", kind)
        return isinstance(value, dict) and all(isinstance(value.get(name), str) for name in names)
    if kind in PARTS:
        members, is_closed = PARTS[kind]
        return isinstance(value, dict) and has_form(value, members, is_closed)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return {
        "text": isinstance(value, str),
        "id": isinstance(value, str) and 1 <= len(value) <= 512,
        "integer": is_number,
        "integer from 1": is_number and value >= 1,
        "true or false": isinstance(value, bool),
        "JSON object": isinstance(value, dict),
        "any value": True,
    }[kind]


def has_form(value: Mapping[str, Any], fields: Fields, is_closed: bool = True) -> bool:
    """Tell whether an object has these fields, each of its type, and no others where it is closed."""
    if is_closed and not value.keys() <= fields.keys():
        return False
    return all(fits(value[name], kind) if name in value else left_out for name, (left_out, kind) in fields.items())
