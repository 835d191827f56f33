"""The documentation as data: its blocks, its command lines, the codes in the source, and the table of modules.

``python -m tests.documents`` writes anew what pages have from the code: the table of modules in
``docs/architecture.md`` from their docstrings, and the tables of topics and their parts in
``docs/reference/log-format.md`` from the events.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from world.audit.event_form import stream_of
from world.events.codec import TOPICS
from world.events.shapes import SHAPES
from world.state.proposal import PROPOSAL_EVENTS

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol")
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md")))
WRITTEN = tuple(page for page in PAGES if page.name != "conformance.md")
"""The pages that people write; the other one is made by the tests."""

ARCHITECTURE = ROOT / "docs" / "architecture.md"
LOG_FORMAT = ROOT / "docs" / "reference" / "log-format.md"

_FENCE = re.compile(
    r"(?:<!-- (?P<mark>[^>\n]*) -->\n)?```(?P<language>[a-z]*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_CODE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+|V-\d{3}|CANCELLED")
"""A code wherever it stands: two words, or the one of a single word that a constant holds."""

_WORD = re.compile(r"[A-Z]{4,}")
_NO_CODES = frozenset(
    {
        "API_ENDPOINT",
        "CONFIG_KEY",
        "CREATE_TABLE",
        "DATABASE_TABLE",
        "DEPENDS_ON",
        "KEY_ID",
        "WORLDPROTOCOL_COMMAND",
        "WORLDPROTOCOL_RUN",
        "WORLD_BRANCH",
        "WORLD_CONFIG",
        "WORLD_TRUST",
        "WORLD_HEIGHT",
        "WORLD_ID",
        "WORLD_LOG",
        "WORLD_PARENT",
        "WORLD_POSITION",
        "WORLD_STATE",
    }
)
"""Texts in the source that look like codes: a key of a foreign library, predicates, arguments, variables."""

_FLAG = re.compile(r"O_[A-Z]+")
"""Flags of the system call open, as messages spell them."""

_LISTS = frozenset({"worldprotocol/cli/support/exit_codes.py"})
"""Modules that tell codes apart and give none."""


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page.

    Args:
        page: where it stands.
        line: of its first line of text, from 1.
        mark: the comment right above it, without its frame; empty where there is none.
        language: of the fence.
        text: what it holds.
    """

    page: Path
    line: int
    mark: str
    language: str
    text: str


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Return the fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return tuple(
        Block(page, text.count("\n", 0, found.start("text")) + 1, found["mark"] or "", found["language"], found["text"])
        for found in _FENCE.finditer(text)
    )


@cache
def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def command_lines(page: Path) -> Iterator[str]:
    """Yield every whole command line of ``worldctl`` in the fenced and indented blocks of a page."""
    indented = re.findall(r"^ {4}(?=worldctl )(.*)$", prose(page), re.MULTILINE)
    yield from indented
    for block in blocks(page):
        if block.language in ("", "sh", "console"):
            joined = block.text.replace("\\\n", " ")
            yield from re.findall(r"^(?:\$ )?(worldctl .*)$", joined, re.MULTILINE)


def mentions(page: Path) -> Iterator[str]:
    """Yield what prose says of ``worldctl`` between backticks: command lines, whole or in part."""
    yield from re.findall(r"`(worldctl [^`]+)`", prose(page).replace("\n", " "))


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


@cache
def codes_in_source() -> dict[str, str]:
    """Return every error code that the packages can give, with one place where it stands."""
    found: dict[str, str] = {}
    for path, tree in _modules():
        if path in _LISTS:
            continue
        unread = {id(inner) for node in ast.walk(tree) if _is_dunder_all(node) for inner in ast.walk(node)}
        for node in ast.walk(tree):
            given = [node] if isinstance(node, ast.Constant) and id(node) not in unread else []
            words = node.args[:2] if isinstance(node, ast.Call) and _is_error(node) else []
            for constant, pattern in [*((one, _CODE) for one in given), *((one, _WORD) for one in words)]:
                value = constant.value if isinstance(constant, ast.Constant) else None
                if isinstance(value, str) and pattern.fullmatch(value) and not _is_no_code(value):
                    found.setdefault(value, f"{path}:{constant.lineno}")
    return found


def _is_dunder_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets)


def _is_error(node: ast.Call) -> bool:
    return ast.unparse(node.func).split(".")[-1] in ("RefusedError", "report_error")


def _is_no_code(text: str) -> bool:
    return text in _NO_CODES or _FLAG.fullmatch(text) is not None


def module_table() -> str:
    """Return the table of all modules, each with the first sentence of its docstring."""
    lines = ["| module | is |", "|---|---|"]
    for path, tree in _modules():
        said = " ".join((ast.get_docstring(tree) or "").partition("\n\n")[0].replace("``", "`").split())
        sentence = re.split(r"(?<=[a-z\d)`])\. ", said)[0].rstrip(".:").replace("|", "\\|")
        lines.append(f"| `{path}` | {sentence} |")
    return "\n".join(lines) + "\n"


def topic_table() -> str:
    """Return the table of all topics, with their fields and what their payloads' docstrings say first."""
    lines = ["| topic | stream | fields | says |", "|---|---|---|---|"]
    for topic, kind in TOPICS.items():
        fields = [
            f"`{field.encode_name}{'' if field.required else '?'}` {_type_name(_part_type(topic, field))}"
            for field in sorted(msgspec.structs.fields(kind), key=lambda field: field.encode_name)
            if field.name != "at"
        ]
        said = " ".join((kind.__doc__ or "").partition("\n\n")[0].replace("``", "`").split())
        said = re.sub(r"(?<=[a-z])_([a-z])", lambda found: found[1].upper(), said)  # names as they stand in the log
        lines.append(f"| `{topic}` | {_stream_name(topic)} | {', '.join(fields)} | {said.rstrip('.')} |")
    return "\n".join(lines) + "\n"


def _stream_name(topic: str) -> str:
    if topic == "projection.recorded":
        return "`projection:ID`"
    if topic.startswith("run."):
        return "`run:ID`"
    if TOPICS[topic] in PROPOSAL_EVENTS:
        return "the proposal's id"
    nothing: dict[str, Any] = {field.name: None for field in msgspec.structs.fields(TOPICS[topic]) if field.required}
    return f"`{stream_of(TOPICS[topic](**nothing))}`"


def _part_type(topic: str, field: msgspec.structs.FieldInfo) -> Any:
    """Return the type of a field, with the shape of what is embedded in it."""
    return dict(SHAPES.get(topic, ())).get(field.name, field.type)


def parts_table() -> str:
    """Return the table of the values that are embedded in events."""
    found: dict[str, type[msgspec.Struct]] = {}
    for parts in SHAPES.values():
        for _, shape in parts:
            _collect(shape, found)
    lines = ["| part | members | |", "|---|---|---|"]
    for name, shape in sorted(found.items()):
        members = [
            f"`{field.encode_name}{'' if field.required else '?'}` {_type_name(field.type)}"
            for field in msgspec.structs.fields(shape)
        ]
        is_closed = shape.__struct_config__.forbid_unknown_fields
        lines.append(f"| {name} | {', '.join(members)} | {'closed' if is_closed else ''} |")
    return "\n".join(lines) + "\n"


def _collect(shape: Any, found: dict[str, type[msgspec.Struct]]) -> None:
    for inner in get_args(shape):
        _collect(inner, found)
    if isinstance(shape, type) and issubclass(shape, msgspec.Struct) and _type_name(shape) not in found:
        found[_type_name(shape)] = shape
        for field in msgspec.structs.fields(shape):
            _collect(field.type, found)


_PLAIN_TYPES = {str: "text", int: "integer", bool: "true or false", float: "number", Any: "any value"}


def _type_name(kind: Any) -> str:
    """Return what a type is called in the document."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {(str, 1): "id", (int, None): "integer from 1"}[inner[0], inner[1].min_length]
    if origin is Literal:
        return " / ".join(f"`{word}`" for word in inner)
    if origin is list:
        return f"list of {_type_name(inner[0])}"
    if origin is dict:
        return "Wire" if inner[1] is Any else f"object of ({_type_name(inner[1])})"
    if origin in (UnionType, Union):
        return " or ".join([*(_type_name(one) for one in inner if one is not type(None)), "null"])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__.strip("_"))
    return _PLAIN_TYPES[kind]


GENERATED = {
    (ARCHITECTURE, "modules"): module_table,
    (LOG_FORMAT, "topics"): topic_table,
    (LOG_FORMAT, "parts"): parts_table,
}
"""The parts of pages that are made from the code, and what makes each."""


def main() -> None:
    """Write the generated parts where they belong."""
    for (page, name), make in GENERATED.items():
        text = page.read_text(encoding="utf-8")
        begin, end = f"<!-- {name}: begin -->\n", f"<!-- {name}: end -->\n"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        page.write_text(f"{before}{begin}\n{make()}\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
