"""Files of examples: what was asked of a realm, and what was answered, byte by byte.

``## NAME @REALM`` begins an example, which runs on its own copy of that realm; lines that begin with ``#`` are notes
for readers. A line after ``$`` is a command or a request. What follows it is the answer: ``| `` stdout or the body,
``! `` stderr, ``: `` a header, ``= `` the exit code unless it is 0, or the status. ``<name>`` in a request is the value
that the last answer of the example gave to this member of JSON.

Long lines of JSON are shown on several lines, with the separators that they have.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "examples"
WIDTH = 118
GENERATED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
"""Ids and hashes."""

MEASURED = re.compile(r'(?<=closedMs":)[\d.]+|(?<=was open for )[\d,]+(?= ms)')
"""Times that are measured."""

SEPARATORS = ((", ", ": "), (",", ":"))
ASKED = re.compile(r"<(\w+)>")


@dataclass(frozen=True)
class Example:
    """An example as its file has it.

    Args:
        name: the command or the operation.
        realm: the realm that it runs on.
        notes: lines for readers.
        asked: commands or requests.
        text: the whole of it, with the recorded answers.
    """

    name: str
    realm: str
    notes: list[str]
    asked: list[str]
    text: str


def read(file: str) -> list[Example]:
    """Return the examples of a file."""
    found = []
    for part in re.split(r"^## ", (FOLDER / file).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, *lines = part.rstrip("\n").split("\n")
        name, realm = heading.split(" @")
        notes = [line for line in lines if line.startswith("# ")]
        asked = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found.append(Example(name, realm, notes, asked, f"## {part.rstrip()}\n"))
    return found


@dataclass
class Answers:
    """Makes the text of one example while it runs.

    Args:
        example: the example.
        known: text in which ids and hashes are found that the example did not generate.
        replaced: texts that differ from run to run, and what stands for them.
    """

    example: Example
    known: str
    replaced: dict[str, str]
    _lines: list[str] = field(default_factory=list)
    _members: dict[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def requests(self) -> Iterator[str]:
        """Yield each command or request in turn, with the values of the answers so far."""
        for asked in self.example.asked:
            self._lines.append(f"$ {asked}")
            yield ASKED.sub(self._value, asked)

    def add(self, mark: str, text: str) -> None:
        """Take a part of an answer.

        Args:
            mark: the sign of its kind.
            text: whole lines; a last one without an end is marked by a backslash.
        """
        if mark == ":":
            name, _, value = text.partition(": ")
            self._members[name] = value
        ended = text.endswith("\n") or mark in ":="
        for line in text.removesuffix("\n").split("\n") if text else ():
            self._remember(line)
            for shown in shown_lines(self._stable(line)):
                self._lines.append(f"{mark} {shown}".rstrip(" ").replace("\r", "\\r"))
        if text and not ended:
            self._lines[-1] += "\\"

    @property
    def text(self) -> str:
        """The text of the example with these answers."""
        heading = f"## {self.example.name} @{self.example.realm}"
        return "\n".join([heading, *self.example.notes, *self._lines]) + "\n"

    def _value(self, asked: re.Match[str]) -> str:
        named = {name.strip("<>"): text for text, name in self.replaced.items()} | self._members
        return named.get(asked[1], asked[0])

    def _remember(self, line: str) -> None:
        """Keep the members of a line of JSON for later requests."""
        with suppress(ValueError):
            json.loads(line, object_pairs_hook=self._keep)

    def _keep(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        for name, value in pairs:
            one = value[0] if isinstance(value, list) and len(value) == 1 else value
            self._members[name] = one if isinstance(one, str) else json.dumps(one)
        return dict(pairs)

    def _stable(self, line: str) -> str:
        for text, name in self.replaced.items():
            line = line.replace(text, name)
        return GENERATED.sub(lambda found: self._name(found[0]), MEASURED.sub("<ms>", line))

    def _name(self, generated: str) -> str:
        if generated in self.known:
            return generated
        kind = "id" if "-" in generated else "hash"
        count = sum(name.startswith(f"<{kind}") for name in self._names.values())
        return self._names.setdefault(generated, f"<{kind}-{count + 1}>")


def shown_lines(line: str) -> list[str]:
    """Return a line as it is shown: long JSON in several lines, if they say the same, byte by byte."""
    if len(line) <= WIDTH or line[0] not in "{[":
        return [line]
    with suppress(ValueError):
        value = json.loads(line)
        for separators in SEPARATORS:
            if json.dumps(value, ensure_ascii=False, separators=separators) == line:
                return list(broken(value, separators))
    return [line]


def broken(
    value: Any, separators: tuple[str, str], indent: str = "", before: str = "", after: str = ""
) -> Iterator[str]:
    """Yield JSON in lines: what fits into a line is in one."""
    whole = f"{indent}{before}{json.dumps(value, ensure_ascii=False, separators=separators)}{after}"
    if len(whole) <= WIDTH or not isinstance(value, dict | list) or not value:
        yield whole
        return
    is_object = isinstance(value, dict)
    yield f"{indent}{before}{'{' if is_object else '['}"
    parts = list(value.items()) if isinstance(value, dict) else [("", one) for one in value]
    for number, (name, one) in enumerate(parts, 1):
        key = f"{json.dumps(name, ensure_ascii=False)}{separators[1]}" if is_object else ""
        yield from broken(one, separators, indent + " ", key, "," if number < len(parts) else "")
    yield f"{indent}{'}' if is_object else ']'}{after}"
