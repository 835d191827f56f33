"""Reading YAML and TOML that others wrote: bounds on nesting and on aliases come before anything is made of the text.

An alias repeats the value of its anchor, so that a few lines can represent 10^9 values; it counts as all of them.
YAML is read by the core schema of version 1.2: ``0777`` is 777, ``0o777`` is 511, and ``yes``, ``12:30`` and
``2026-01-31`` are texts. Merge keys are allowed, repeated keys are not. Every refusal names the line. Source: design
section 4; YAML 1.2.2, sections 3.2.1.3 and 10.3.2.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from typing import Any, ClassVar, Final

import yaml

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.sizes import MAX_MARKUP_DEPTH, MAX_YAML_NODES, MAX_YAML_NUMBER_CHARS

__all__ = ["YAML_CORE", "YamlLoader", "check_toml", "check_yaml", "load_toml", "load_yaml", "yaml_fault"]

_SAFE_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The compiled safe loader where it exists."""

YAML_CORE: Final = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        list("-+.0123456789"),
    ),
    ("merge", r"<<", ["<"]),
)
"""Plain scalars that are no texts: the tag, its expression, and the first characters."""


_MERGE: Final = "tag:yaml.org,2002:merge"


class YamlLoader(_SAFE_LOADER):  # type: ignore[misc]  # the compiled one where it exists
    """Safe loader of the core schema of YAML 1.2 that refuses repeated keys.

    Keys are compared by their values (``1``, ``01``, ``1.0`` and ``true`` are one key of a mapping), as the text has
    them: before a merge adds those of other mappings.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}

    def get_single_node(self) -> Any:
        """Return the one document; None where there is none.

        Raises:
            yaml.YAMLError: for a key that a mapping has twice, and for what is no YAML.
        """
        root = super().get_single_node()
        waiting, met = [] if root is None else [root], set()
        while waiting:
            node = waiting.pop()
            if id(node) in met or isinstance(node, yaml.ScalarNode):
                continue
            met.add(id(node))
            if isinstance(node, yaml.MappingNode):
                self._check_keys(node)
                waiting += [one for pair in reversed(node.value) for one in reversed(pair)]
            else:
                waiting += reversed(node.value)
        return root

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value of a node.

        Raises:
            yaml.constructor.ConstructorError: for a text that its tag does not allow, and others of the safe loader.
        """
        try:
            return super().construct_object(node, deep)
        except (AttributeError, KeyError):  # the safe loader assumes that a text has the form of its tag
            kind = node.tag.rpartition(":")[2]
            problem = f"{node.value!r:.60} is no {kind}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Any] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # a list or an object cannot be a key
            value = (_MERGE,) if key.tag == _MERGE else self.construct_object(key)
            if value in seen:
                problem = f"it has the key {key.value!r:.60} a second time"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            seen.add(value)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return a whole number: decimal, octal with ``0o``, hexadecimal with ``0x``."""
        text = self.construct_scalar(node)
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


for _tag, _pattern, _first in YAML_CORE:
    YamlLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})\\Z"), _first)
YamlLoader.add_constructor("tag:yaml.org,2002:int", YamlLoader.construct_yaml_int)

_NUMBER_TAGS: Final = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DIGITS: Final = re.compile(r"[-+.]?[0-9][0-9A-Fa-fox.+-]*")

_TOML: Final = re.compile(
    r'"""(?s:.*?)(?<!\\)(?:\\\\)*"""|\'\'\'(?s:.*?)\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\#[^\n]*|[\[\]{}.,=]|\n'
)


def load_yaml(text: str) -> Any:
    """Return what one YAML document says, read by the safe loader.

    Raises:
        RefusedError: ``MALFORMED_YAML``, ``YAML_TOO_LARGE``, with the line.
    """
    check_yaml(text)
    try:
        return yaml.load(text, YamlLoader)  # noqa: S506 - it is a safe loader
    except yaml.YAMLError as error:
        raise RefusedError(ErrorCode.MALFORMED_YAML, f"This is no YAML: {yaml_fault(error)}.") from None
    except (ValueError, RecursionError) as error:  # a date or number that the grammar allows and Python does not
        raise RefusedError(ErrorCode.MALFORMED_YAML, f"This YAML cannot be read: {error}.") from None


def check_yaml(
    text: str | bytes, *, max_depth: int = MAX_MARKUP_DEPTH, plain: str = "", without: Collection[str] = ()
) -> None:
    """Refuse a YAML text that is nested too deep, represents too many values or has a long number, before it is read.

    Args:
        text: the text.
        max_depth: levels of lists and objects.
        plain: what the text is, such as ``a manifest``, where it may have no aliases.
        without: what it may not have beside: ``anchor``, ``tag``.

    Raises:
        RefusedError: ``MALFORMED_YAML``, ``YAML_TOO_LARGE``, with the line.
    """
    counted = _NodeCounter(max_depth)
    try:
        for event in yaml.parse(text, _SAFE_LOADER):
            line = 1 if event.start_mark is None else event.start_mark.line + 1
            if plain:
                _check_plain(event, line, plain, without)
            counted.take(event, line)
    except yaml.YAMLError as error:
        raise RefusedError(ErrorCode.MALFORMED_YAML, f"This is no YAML: {yaml_fault(error)}.") from None


class _NodeCounter:
    """Counts the values of a YAML text, event by event."""

    def __init__(self, max_depth: int) -> None:
        self._max_depth = max_depth
        self._sizes: dict[str, int] = {}
        self._opened: list[tuple[str | None, int]] = []
        self._total = 0

    def take(self, event: Any, line: int) -> None:
        """Count one event of the parser."""
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in self._opened):
                raise _malformed(f"The alias *{event.anchor} at line {line} refers to a value that contains it", line)
            self._total += self._sizes.get(str(event.anchor), 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = self._opened.pop()
            if anchor is not None:
                self._sizes[anchor] = self._total - before
        elif isinstance(event, yaml.NodeEvent):
            self._total += 1
            if isinstance(event, yaml.ScalarEvent):
                _check_number(event, line)
            if isinstance(event, yaml.CollectionStartEvent):
                self._opened.append((event.anchor, self._total - 1))
            elif event.anchor is not None:
                self._sizes[event.anchor] = 1
        if len(self._opened) > self._max_depth:
            raise _malformed(f"It is nested more than {self._max_depth} deep at line {line}", line)
        if self._total > MAX_YAML_NODES:
            raise _too_large(self._total, line)


def _check_number(event: Any, line: int) -> None:
    """Refuse a long number, which takes time by the square of its length."""
    if len(event.value) <= MAX_YAML_NUMBER_CHARS:
        return
    is_plain = event.tag is None and event.implicit[0] and _DIGITS.fullmatch(event.value)
    if is_plain or event.tag in _NUMBER_TAGS:
        limit = f"{MAX_YAML_NUMBER_CHARS} characters (MAX_YAML_NUMBER_CHARS)"
        raise _malformed(f"The number at line {line} has more than {limit}; put it in quotes if it is a text", line)


def _check_plain(event: Any, line: int, what: str, without: Collection[str]) -> None:
    if isinstance(event, yaml.AliasEvent):
        raise _malformed(f"An alias at line {line}: write it out; {what} has no anchors and aliases", line)
    for mark in without:
        if getattr(event, mark, None) is not None:
            raise _malformed(f"There is a {mark} at line {line}: leave it out; {what} has none", line)


def _malformed(message: str, line: int) -> RefusedError:
    return RefusedError(ErrorCode.MALFORMED_YAML, f"{message}.", line=line)


def _too_large(total: int, line: int) -> RefusedError:
    return RefusedError(
        ErrorCode.YAML_TOO_LARGE,
        f"With the aliases up to line {line} the YAML has {total} values; the limit is {MAX_YAML_NODES} "
        "(MAX_YAML_NODES). Use fewer aliases, or split it.",
        line=line,
        values=total,
        max_values=MAX_YAML_NODES,
    )


def yaml_fault(error: yaml.YAMLError) -> str:
    """Return what is wrong with a YAML text, on one line, with the place."""
    mark = getattr(error, "problem_mark", None)
    where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
    return " ".join(str(getattr(error, "problem", None) or error).split()) + where


def load_toml(text: str) -> dict[str, Any]:
    """Return what a TOML text says.

    Raises:
        RefusedError: ``MALFORMED_TOML`` with the line.
    """
    check_toml(text)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RefusedError(ErrorCode.MALFORMED_TOML, f"{error}.") from None


def check_toml(text: str, *, max_depth: int = MAX_MARKUP_DEPTH) -> None:
    """Refuse a TOML text whose lists, tables or dotted keys are nested too deep, before it is read.

    Raises:
        RefusedError: ``MALFORMED_TOML`` with the line.
    """
    depth, dots, line = 0, 0, 1
    for match in _TOML.finditer(text):
        piece = match.group()
        if piece[0] in ".[]{},=\n":
            dots = dots + 1 if piece == "." else 0
        if piece in ("[", "{"):
            depth += 1
        elif piece in ("]", "}"):
            depth = max(0, depth - 1)
        line += piece.count("\n")
        if max(depth, dots) > max_depth:
            message = f"It is nested more than {max_depth} deep at line {line}"
            raise RefusedError(ErrorCode.MALFORMED_TOML, f"{message}.", line=line)
