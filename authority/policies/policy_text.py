"""Parser of policy files, TOML or YAML, that returns data with line numbers.

The readers of policy files and ``authority.policies.loading`` import this. It is strict: a duplicate key, an anchor, a
tag or a second document is refused, because people misread such files.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from authority.bounded_text import error_text
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.markup import YamlLoader, check_toml, check_yaml, yaml_fault

MAX_BYTES: Final = 1_048_576
"""Maximum size of a policy file in bytes."""

MAX_DEPTH: Final = 16
"""Maximum depth of a policy file; a policy has four levels."""

SUFFIXES: Final = (".toml", ".yaml", ".yml", ".cedar")
"""Suffixes of policy files."""

Place = tuple[str | int, ...]
"""Path of a part of the data: keys and indexes."""

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
_ENDS_IN_BACKSLASH: Final = re.compile(r"(?<!\\)(?:\\\\)*\\[ \t]*\r?\n")
_PLAIN: Final = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null"))


@dataclass(frozen=True, slots=True)
class ParsedText:
    """Data of a file with its line numbers.

    Args:
        data: the data.
        lines: the lines, from 1, of its parts.
        joined: texts that are written over several lines, which the format joins: folded in YAML, or with a backslash
            at the end of a line in TOML.
    """

    data: Any
    lines: dict[Place, int] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()

    def line(self, place: Place) -> int:
        """Return the line of a part, or of the nearest enclosing part."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def is_policy_file(reference: str) -> bool:
    """Return whether a reference names a policy file such as ``rules.toml``."""
    return reference.lower().endswith(SUFFIXES)


def invalid_file(file: str, faults: list[dict[str, Any]]) -> RefusedError:
    """Return the refusal of a policy file with all its faults."""
    words = "; ".join(f"line {fault['line']}, {fault['path']}: {fault['message']}" for fault in faults)
    return RefusedError(
        ErrorCode.INVALID_POLICY, f"{file} is not a valid policy: {words.rstrip('.')}.", faults=faults, reference=file
    )


def read_file(path: Path) -> str:
    """Return the text of a policy file.

    Raises:
        RefusedError: ``NOT_LOADED`` where it cannot be read, is not UTF-8, or has more than ``MAX_BYTES``.
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")  # some editors write a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error_text(error)
        raise RefusedError(ErrorCode.NOT_LOADED, f"{path.name} cannot be read: {why}.", reference=str(path)) from None
    if len(content) > MAX_BYTES:
        raise RefusedError(ErrorCode.NOT_LOADED, f"{path.name} has more than {MAX_BYTES} bytes.", reference=str(path))
    return text


def read_text(text: str, *, is_toml: bool) -> ParsedText:
    """Parse a text.

    Raises:
        RefusedError: ``INVALID_POLICY`` with the line, for invalid TOML or YAML, or features that are not allowed.
    """
    try:
        if is_toml:
            check_toml(text, max_depth=MAX_DEPTH)
            return ParsedText(tomllib.loads(text), _toml_lines(text), _toml_joined(text))
        return _read_yaml(text)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(str(error)) from None
    except RefusedError as refused:
        raise _malformed(refused.message) from None
    except yaml.YAMLError as error:
        raise _malformed(yaml_fault(error)) from None
    except ValueError as error:  # a date or a number that YAML allows and Python does not
        raise _malformed(str(error)) from None


def _malformed(words: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_POLICY, words)


def _toml_lines(text: str) -> dict[Place, int]:
    """Return the lines of tables, items of lists, and keys of a valid TOML text."""
    lines: dict[Place, int] = {}
    counts: dict[Place, int] = {}  # number of tables of a list so far
    table: Place = ()
    keys: Place = ()
    opened, line, item = "", 1, 0
    fresh, is_key = True, False  # whether a statement may start; whether its key is still open
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


def _toml_joined(text: str) -> frozenset[str]:
    pieces = (match["text"] for match in _TOML.finditer(text) if match["text"])
    return frozenset(_named(piece) for piece in pieces if piece.startswith('"""') and _ENDS_IN_BACKSLASH.search(piece))


def _table(text: str, at: int, counts: dict[Place, int], *, is_item: bool) -> Place:
    """Return the place of the table of a header."""
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
    """Return the value of a written key."""
    if key[0] != '"':
        return key.strip("'")
    return str(tomllib.loads(f"key = {key}")["key"]) if "\\" in key else key[1:-1]


def _read_yaml(text: str) -> ParsedText:
    check_yaml(text, max_depth=MAX_DEPTH, plain="a policy file", without=["anchor"])
    loader = YamlLoader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Place, int] = {}
        joined: set[str] = set()
        data = None if node is None else _plain(loader, node, (), lines, joined)
        return ParsedText(data, lines, frozenset(joined))
    finally:
        loader.dispose()


def _plain(loader: YamlLoader, node: yaml.Node, place: Place, lines: dict[Place, int], joined: set[str]) -> Any:
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, one, (*place, at), lines, joined) for at, one in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(loader, node, place, lines, joined)
    if not isinstance(node, yaml.ScalarNode) or node.tag not in _PLAIN:
        kind = node.tag.rpartition(":")[2]
        raise _malformed(f"line {lines[place]} holds a {kind}; only texts, numbers and truth values; put it in quotes")
    if node.style != "|" and node.end_mark.line > node.start_mark.line:
        joined.add(node.value)
    return loader.construct_object(node)


def _mapping(
    loader: YamlLoader, node: yaml.MappingNode, place: Place, lines: dict[Place, int], joined: set[str]
) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode) or key.tag != "tag:yaml.org,2002:str":
            raise _malformed(f"line {line} has a key that is not a string; put it in quotes")
        found[key.value] = _plain(loader, value, (*place, key.value), lines, joined)
        lines[*place, key.value] = line
    return found
