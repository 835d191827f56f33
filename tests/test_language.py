"""The product's docstrings and messages are in technical English: no persons in place of programs, no idioms."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.syntax import nodes, syntax_tree

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("world", "projections", "authority", "host", "worldprotocol", "conformance", "examples")

WORDS = (
    # a program, a process or a caller is named by its technical noun; it reports, returns and stores
    *("told", "tell", "tells", "knows", "nobody", "somebody", "everybody", "whoever", "wish", "wishes", "wished"),
    # values are at a path, in a file, equal to; results are recorded, returned, computed
    *("stands", "lies", "came", "lets", "made up", "as it goes", "what is asked for"),
    # loaded, available; continues; adopted
    *("at hand", "goes on", "taken over"),
)
PATTERN = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b", re.IGNORECASE)

RECORDED = (
    # These texts are in recorded events, and a recheck compares them with what the code answers now.
    "at hand is not the one that was adopted",
    "at hand is not as adopted",
    "There is no policy {} at hand",
    "Nobody waits for this effect any more.",
    "nobody waits for this result any more",
    "nobody answers for a proposal of their own",
    "nobody has voted",
    "After this step nobody else can be asked",
    "a projection knows no time",
    "a projection asks nobody",
    "let the source event carry it",
    "lies outside of the workspace",
)
"""Texts that are part of recorded events."""

VALUES = {"at hand", "not at hand"}
"""Values of JSON output and heads of columns."""

PERSONS = (
    # The sentence is about people.
    "members are named; * is nobody in particular",
    "it asks {}, who is not registered",
)
"""Texts about people."""

EXCEPTIONS = {
    # The repository example is a recorded realm: the hashes of its rules and of its domain cover these texts.
    "examples/repository/rules.py",
    "examples/repository/domain.py",
    "examples/repository/branches.py",
    "examples/repository/effects.py",
}
"""Modules that are left out."""


@cache
def product_files() -> tuple[Path, ...]:
    """Return the modules of the product, of the programs for other implementations, and of the examples."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple(path for path in paths if str(path.relative_to(ROOT)) not in EXCEPTIONS)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring and each message of a module; placeholders are ``{}``."""
    tree = syntax_tree(path)
    joined = nodes(tree, ast.JoinedStr)
    inside = {id(part) for node in joined for part in node.values}
    for node in nodes(tree, ast.Constant):
        if isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value
    for text in joined:
        parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in text.values)
        yield text.lineno, "".join(map(str, parts))


def findings(path: Path, root: Path = ROOT) -> Iterator[str]:
    """Yield "path:line: text" for each text with one of the words."""
    for line, text in texts(path):
        words = " ".join(text.split())
        if " " not in words or words in VALUES:
            continue
        shown = re.sub(r"``[^`]*``|`[^`]*`|worldctl \w+", "", words)
        for allowed in (*RECORDED, *PERSONS):
            shown = shown.replace(allowed, "")
        if PATTERN.search(shown):
            yield f"{path.relative_to(root)}:{line}: {words[:120]}"


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_messages_are_in_technical_english(package: str) -> None:
    found = [one for path in product_files() if path.is_relative_to(ROOT / package) for one in findings(path)]
    assert found == []


@pytest.mark.parametrize("text", ["The caller is told.", "It came to nothing.", "what lies there", "as it goes on"])
def test_a_word_of_the_list_is_found_in_docstrings_and_messages(text: str, tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(f'"""{text}"""\nraise ValueError(f"{text} {{1}}")\n', encoding="utf-8")
    assert [one.partition(":")[2] for one in findings(module, tmp_path)] == [f"1: {text}", f"2: {text} {{}}"]
