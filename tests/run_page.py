"""Runs one page of the documentation: ``python -m tests.run_page PAGE``, in an empty folder.

Its blocks are taken in order. A block marked ``<!-- file: NAME -->`` is written to that file; other ``python`` blocks
are executed, all in one namespace. In ``console`` blocks every line that begins with ``$ worldctl`` or ``$ python -m
conformance`` is run, and what it
prints is compared with the lines below it, where ``...`` stands for anything; a plain block of nothing but ``worldctl``
lines is run, too. ``print(...)  # text`` has to print the text, or its part before a colon. A command's own comment may
end in ``exit N``; without one it has to end with 0. Where a command says ``ID``, ``WORLD``, ``SIZE:ROOT`` or
``PUBLIC_KEY`` or ``VERIFIER_KEY``, the last id, world, tree head or key that was printed is meant.

Blocks marked ``<!-- where commands can be confined -->`` need a kernel that holds commands. Where it cannot, each
``worldctl run`` in them has to be refused, and their Python is left out.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from conformance.commands import root as conformance
from tests.documents import Block, blocks
from worldprotocol.cli.commands.run.run import REFUSED
from worldprotocol.cli.program import root, run
from worldprotocol.runs.command import confinement_support

_PRINTS = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
_EXIT = re.compile(r"#.*\bexit (\d+)$")
PROGRAMS = {("worldctl",): root, ("python", "-m", "conformance"): conformance}
"""What a command line begins with, and the commands that it runs."""

_CONFINED = "where commands can be confined"
_MEANT = {
    "ID": re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"),
    "WORLD": re.compile(r"(?<=world )[0-9a-f]{12,64}\b"),
    "SIZE:ROOT": re.compile(r"\b\d+:[0-9a-f]{64}\b"),
    "VERIFIER_KEY": re.compile(r"[\w./-]+\+[0-9a-f]{8}\+[\w+/]{44}"),
    "PUBLIC_KEY": re.compile(r"(?<![\w+/])[\w+/]{43}="),
}


def main(page: Path) -> int:
    """Run a page and return how many of its blocks did not do what they say."""
    sys.path.insert(0, "")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    meant: dict[str, str] = {}
    faults = [fault for block in blocks(page) for fault in _run(block, namespace, meant)]
    for fault in faults:
        print(fault)
    return min(len(faults), 100)


def _run(block: Block, namespace: dict[str, Any], meant: dict[str, str]) -> list[str]:
    if block.mark.startswith("file: "):
        Path(block.mark.removeprefix("file: ")).write_text(block.text, encoding="utf-8")
        return []
    if block.mark == _CONFINED and confinement_support().why_not is not None:
        return _refused(block, meant)
    if block.language == "python":
        return _python(block, namespace)
    if block.language == "console":
        return _console(block, meant)
    lines = block.text.splitlines() if block.language == "" else []
    if not all(line.startswith("worldctl ") for line in lines):
        return []
    return [fault for line in lines for fault in _command(f"{block.page.name}:{block.line}", line, "", meant)]


def _python(block: Block, namespace: dict[str, Any]) -> list[str]:
    where = f"{block.page.name}:{block.line}"
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            exec(compile("\n" * (block.line - 1) + block.text, str(block.page), "exec"), namespace)
        except BaseException as error:  # noqa: BLE001 - whatever an example raises is its fault
            return [f"{where}: {type(error).__name__}: {error}"]
    told = [comment.partition(":")[0] if ": " in comment else comment for comment in _PRINTS.findall(block.text)]
    printed = said.getvalue().splitlines()
    return [] if printed == told else [f"{where}: says {told} and prints {printed}"]


def _console(block: Block, meant: dict[str, str]) -> list[str]:
    faults: list[str] = []
    for shown in re.split(r"^\$ ", block.text.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
        command, _, wanted = shown.partition("\n")
        faults += _command(f"{block.page.name}:{block.line}", command, wanted, meant)
    return faults


def _refused(block: Block, meant: dict[str, str]) -> list[str]:
    runs = re.findall(r"^\$ (worldctl run .*?)(?:  # exit \d+)?$", block.text, flags=re.MULTILINE)
    where = f"{block.page.name}:{block.line}"
    return [fault for line in runs for fault in _command(where, f"{line}  # exit {REFUSED}", "", meant)]


def _command(where: str, command: str, wanted: str, meant: dict[str, str]) -> list[str]:
    words = shlex.split(command, comments=True)
    start = next((start for start in PROGRAMS if words[: len(start)] == list(start)), None)
    if start is None:
        return [f"{where}: {words[0]} cannot be run here; show it in a block of another kind"]
    arguments = words[len(start) :]
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.redirect_stderr(said):
        code = run([meant.get(argument, argument) for argument in arguments], PROGRAMS[start])
    meant.update({name: found[-1] for name, pattern in _MEANT.items() if (found := pattern.findall(said.getvalue()))})
    told = _EXIT.search(command)
    if code != (int(told[1]) if told else 0):
        return [f"{where}: {command!r} ends with {code} and prints\n{said.getvalue()}"]
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    fits = not wanted.strip() or doctest.OutputChecker().check_output(wanted, said.getvalue(), flags)
    return [] if fits else [f"{where}: {command!r} prints\n{said.getvalue()}\nand not\n{wanted}"]


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
