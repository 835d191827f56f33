"""The text of a policy file, TOML or YAML, as plain data in which every part knows its line.

The readers of policy files and ``authority.policies.loading`` import this. Strict: a key that stands twice, an anchor,
a tag or a second document is refused, because people read such files differently from machines.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from authority.bounded_text import told
from world.errors import RefusedError
from world.markup import check_toml, check_yaml, yaml_fault

MAX_BYTES: Final = 1_048_576
"""Bytes of a policy file."""

MAX_DEPTH: Final = 16
"""Levels of a policy file in YAML; a policy has four."""

SUFFIXES: Final = (".toml", ".yaml", ".yml", ".cedar")
"""How the names of policy files end."""

Place = tuple[str | int, ...]
"""Keys and numbers that lead to a part of the data."""

_TOML: Final = re.compile(
    r"""(?P<text>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    |(?P<comment>\#[^\n]*)
    |(?P<line>\n)
    |(?P<table>\[\[|\]\])
    |(?P<mark>[\[\]{}=])
    |(?P<bare>[A-Za-z0-9_\-]+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_HEADER: Final = re.compile(r"\[\[?(?P<keys>(?:[^\]\"'\n]|\"(?:\\.|[^\"\\\n])*\"|'[^'\n]*')*)\]")
_KEY: Final = re.compile(r"""[A-Za-z0-9_\-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*\'""")
_PLAIN: Final = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))


@dataclass(frozen=True, slots=True)
class Written:
    """What a file says, and where.

    Args:
        data: as the file says it.
        lines: the line, from 1, of every part whose line is known.
    """

    data: Any
    lines: dict[Place, int] = field(default_factory=dict)

    def line(self, place: Place) -> int:
        """Return the line of a part, or of the nearest part around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def is_policy_file(reference: str) -> bool:
    """Tell whether a reference names a policy file: ``rules.toml``, ``house/rules.yaml``, ``house.cedar``."""
    return reference.lower().endswith(SUFFIXES)


def invalid_file(file: str, faults: list[dict[str, Any]]) -> RefusedError:
    """Return the refusal of a policy file that tells all its faults, each ``{"path", "message", "line"}``."""
    words = "; ".join(f"line {fault['line']}, {fault['path']}: {fault['message']}" for fault in faults)
    return RefusedError(
        "INVALID_POLICY", f"{file} is no valid policy: {words.rstrip('.')}.", faults=faults, reference=file
    )


def read_file(path: Path) -> str:
    """Return the text of a policy file.

    Raises:
        RefusedError: ``NOT_LOADED`` where it cannot be read, is no UTF-8, or has more than ``MAX_BYTES``.
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")  # some editors put a mark before the text, which says nothing
    except (OSError, UnicodeDecodeError) as error:
        raise RefusedError("NOT_LOADED", f"{path.name} cannot be read: {told(error)}.", reference=str(path)) from None
    if len(content) > MAX_BYTES:
        raise RefusedError("NOT_LOADED", f"{path.name} has more than {MAX_BYTES} bytes.", reference=str(path))
    return text


def read_text(text: str, *, is_toml: bool) -> Written:
    """Return what a text says.

    Raises:
        RefusedError: ``INVALID_POLICY`` with the line, where it is no TOML or YAML, or not the strict kind.
    """
    try:
        if is_toml:
            check_toml(text, max_depth=MAX_DEPTH)
            return Written(tomllib.loads(text), _toml_lines(text))
        return _read_yaml(text)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(str(error)) from None
    except RefusedError as refused:
        raise _malformed(refused.message) from None
    except yaml.YAMLError as error:
        raise _malformed(yaml_fault(error)) from None
    except ValueError as error:  # a date or a number that YAML's grammar allows and Python does not
        raise _malformed(str(error)) from None


def _malformed(words: str) -> RefusedError:
    return RefusedError("INVALID_POLICY", words)


def _toml_lines(text: str) -> dict[Place, int]:
    """Return the lines of tables, of tables in lists, and of keys; the text is known to be TOML."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}  # how many tables a list has so far
    table: Place = ()
    keys: Place = ()
    opened, line, item = "", 1, 0
    fresh, is_key = True, False  # whether a statement could begin here; whether its key is not over yet
    for match in _TOML.finditer(text):
        kind, piece = match.lastgroup, match.group()
        begins = fresh and not opened
        if begins and piece in ("[", "[["):
            table = _table(text, match.start(), counts, is_item=piece == "[[")
            lines.setdefault(table, line)
        elif (begins or is_key) and kind in ("bare", "text"):
            keys = (*keys, _named(piece)) if is_key else (_named(piece),)
            lines.setdefault((*table, *keys), line)
            is_key, item = True, 0
        elif opened == "[" and piece == "{":
            lines.setdefault((*table, *keys, item), line)
        is_key = is_key and piece != "="
        item += opened == "[" and piece == ","
        if kind in ("mark", "table") and piece != "=":
            opened = opened + piece if piece[0] in "[{" else opened[: -len(piece)]
        fresh = kind == "line" or (fresh and piece.isspace())
        line += piece.count("\n")
    return lines


def _table(text: str, at: int, counts: dict[Place, int], *, is_item: bool) -> Place:
    """Return the place of the table whose header begins here; one in a list is the list's next or its last."""
    header = _HEADER.match(text, at)
    place: Place = ()
    *above, last = [_named(key) for key in _KEY.findall("" if header is None else header["keys"])] or ["?"]
    for key in above:
        place = (*place, key)
        if place in counts:
            place = (*place, counts[place] - 1)
    place = (*place, last)
    if is_item:
        counts[place] = counts.get(place, 0) + 1
    return (*place, counts[place] - 1) if is_item else place


def _named(key: str) -> str:
    """Return the key that is written so."""
    if key[0] != '"':
        return key.strip("'")
    return str(tomllib.loads(f"key = {key}")["key"]) if "\\" in key else key[1:-1]


def _read_yaml(text: str) -> Written:
    check_yaml(text, max_depth=MAX_DEPTH, plain="a policy file", without=["anchor"])
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        return Written(None if node is None else _plain(loader, node, (), lines), lines)
    finally:
        loader.dispose()


def _plain(loader: yaml.SafeLoader, node: yaml.Node, place: Place, lines: dict[Place, int]) -> Any:
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, one, (*place, at), lines) for at, one in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, place, lines)
    if node.tag not in _PLAIN:
        kind = node.tag.rpartition(":")[2]
        raise _malformed(f"line {lines[place]} holds a {kind}; only texts, numbers and truth values; put it in quotes")
    return loader.construct_object(node)


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode, place: Place, lines: dict[Place, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise _malformed(f"line {line} has a key that is no text; put it in quotes")
        if key.value in found:
            raise _malformed(f"line {line} says {key.value} a second time")
        found[key.value] = _plain(loader, value, (*place, key.value), lines)
        lines[*place, key.value] = line
    return found
