"""The documentation as data: its blocks, its command lines, the codes in the source, and the table of modules.

``python -m tests.documents`` writes the table of modules in ``docs/architecture.md`` anew from their docstrings.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol")
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))
WRITTEN = tuple(page for page in PAGES if page.name != "conformance.md")
"""The pages that people write; the other one is made by the tests."""

ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODULES_BEGIN, MODULES_END = "<!-- modules: begin -->\n", "<!-- modules: end -->\n"

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
        "WORLD_CONFIG",
        "WORLD_LOG",
    }
)
"""Texts in the source that look like codes: a key of a foreign library, predicates, arguments, variables."""

_FLAG = re.compile(r"O_[A-Z]+")
"""Flags of the system call open, as messages spell them."""

_LISTS = frozenset({"worldprotocol/cli/exits.py"})
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
    return ast.unparse(node.func).split(".")[-1] in ("Refused", "report_error")


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


def main() -> None:
    """Write the table of modules where it belongs."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    before, _, rest = text.partition(MODULES_BEGIN)
    _, _, after = rest.partition(MODULES_END)
    ARCHITECTURE.write_text(f"{before}{MODULES_BEGIN}\n{module_table()}\n{MODULES_END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
