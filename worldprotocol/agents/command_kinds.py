"""What kinds of things a shell command does, by its words (KO-2.1, KO-5.1).

The words of a command are a hint and no proof: a program may do anything. Kinds serve policies, which ask people about
the dangerous ones; what a command really touches is held by confinement (``worldctl run``). Whatever is not recognised
is ``unknown``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from worldprotocol.agents.command_words import SimpleCommand

__all__ = ["KINDS", "kinds_of"]

KINDS: Final = ("read", "test", "write", "remove", "code", "network", "publish", "privileged", "outside", "unknown")
"""All kinds, the harmless ones first. ``code`` runs a program, or does things that its words do not name; ``outside``
touches files outside of the project."""

_TABLES: Final[Mapping[str, Any]] = tomllib.loads(
    (files("worldprotocol.agents") / "command_kinds.toml").read_text(encoding="utf-8")
)
_OF_WORD: Final = {word: kind for kind, words in _TABLES["programs"].items() for word in words}
_SUBCOMMANDS: Final[Mapping[str, Mapping[str, list[str]]]] = _TABLES["subcommands"]
_OPTIONS: Final[Mapping[str, Mapping[str, list[str]]]] = _TABLES["options"]
_SAME_AS: Final[Mapping[str, str]] = _TABLES["same_as"]
_VARIABLES: Final = frozenset(_TABLES["variables"]["harmless"])

_SYSTEM: Final = frozenset({"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/usr/local/bin"})
_WRAPPERS: Final = frozenset({"command", "nice", "nohup", "stdbuf", "time", "timeout"})
_HARMLESS_TARGETS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr"})
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_REMOVES: Final = frozenset({"clear", "delete", "drop", "expire", "prune", "remove"})
"""What git does with a stash, a worktree or a log of references that takes it away."""

_TESTS: Final = (["-m", "pytest"], ["-m", "unittest"], ["-m", "mypy"])

_PLACE: Final = r"(?:\d+|\$|/(?:[^/\\\n]|\\.)*/)"
_SED: Final = re.compile(
    rf"\s*(?:{_PLACE}(?:,\+?{_PLACE})?)?\s*!?\s*"
    r"(?:[pdq=]|[sy](?P<mark>[^\w\s\\])(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)"
    r"(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gIip\d]*)\s*"
)
"""One command of sed that prints, deletes or replaces; others write files or run programs."""


def kinds_of(commands: Sequence[SimpleCommand], is_opaque: bool) -> list[str]:
    """Return the kinds of things that simple commands do, without repetition, in the order of ``KINDS``.

    Args:
        commands: as ``read_command`` returns them.
        is_opaque: whether there are parts that only a shell understands.
    """
    found = {"unknown"} if is_opaque else set()
    for one in commands:
        found |= _kinds(one)
    return [kind for kind in KINDS if kind in found] or ["unknown"]


def _kinds(command: SimpleCommand) -> set[str]:
    found = {"write"} if any(one.text not in _HARMLESS_TARGETS for one in command.writes) else set()
    if any(one.is_expanded for one in (*command.words, *command.reads, *command.writes)):
        found.add("unknown")
    words = [one.text for one in command.words]
    while words and _ASSIGNMENT.match(words[0]):
        found |= _of_assignment(words.pop(0))
    return found | (_of_program(words) if words else set())


def _of_assignment(word: str) -> set[str]:
    return set() if word.partition("=")[0] in _VARIABLES else {"unknown"}


def _of_program(words: list[str]) -> set[str]:
    name, *arguments = words
    folder, slash, name = name.rpartition("/")
    if slash and folder not in _SYSTEM:
        return {"code"}
    if name == "env":
        return _of_environment(arguments)
    if name in _WRAPPERS:
        inner = [word for word in arguments if not word.startswith("-") and not word.rstrip("smhd").isdigit()]
        return _of_program(inner) if inner else {"read"}
    if name == "xargs":  # its arguments are not in its words
        inner = [word for word in arguments if not word.startswith("-")]
        return {"unknown"} | (_of_program(inner) if inner else set())
    if name == "sed":
        return _of_sed(arguments)
    if name in ("python", "python3") and arguments[:2] in _TESTS:
        return {"test"}
    name = _SAME_AS.get(name, name)
    found = _of_options(name, arguments)
    return found | (_of_subcommand(name, arguments) or {_OF_WORD.get(name, "unknown")})


def _of_environment(arguments: list[str]) -> set[str]:
    found: set[str] = set()
    while arguments and (arguments[0].startswith("-") or _ASSIGNMENT.match(arguments[0])):
        word = arguments.pop(0)
        found |= {"unknown"} if word.startswith("-") else _of_assignment(word)
    return found | (_of_program(arguments) if arguments else {"unknown"})  # alone it prints all, secrets too


def _of_options(name: str, arguments: list[str]) -> set[str]:
    """Return the kinds of options of a program that do something else than the program does without them."""
    table = _OPTIONS.get(name, {})
    return {kind for kind, options in table.items() if any(_has(word, tuple(options)) for word in arguments)}


def _has(word: str, options: tuple[str, ...]) -> bool:
    """Whether a word is one of several options; a single letter may be combined with others, and with its value."""
    if word.startswith("--"):
        given = word.partition("=")[0]
        return any(
            one.startswith("--") and (one == given or (len(given) > 3 and one.startswith(given))) for one in options
        )
    letters = {one[1] for one in options if len(one) == 2 and one[0] == "-"}
    return word in options or (len(word) > 1 and word[0] == "-" and not letters.isdisjoint(word[1:]))


def _of_sed(arguments: list[str]) -> set[str]:
    edits = any(word.startswith(("-i", "--in-place")) for word in arguments)
    rest, scripts = [], []
    words = iter(arguments)
    for word in words:
        if word in ("-e", "--expression"):
            scripts.append(next(words, ""))
        elif word in ("-f", "--file") or word.startswith(("--file=", "--expression=")):
            return {"code"}
        elif not word.startswith("-"):
            rest.append(word)
    scripts = scripts or rest[:1]
    if not scripts or not all(_is_plain_script(one) for one in scripts):
        return {"code"}
    return {"write"} if edits else {"read"}


def _is_plain_script(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _SED.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
        if at < len(script) and script[at] not in ";\n":
            return False
        at += 1
    return True


def _of_subcommand(name: str, arguments: list[str]) -> set[str]:
    table = _SUBCOMMANDS.get(name)
    if table is None:
        return set()
    words = iter(arguments)
    chosen = "help"
    for word in words:
        if name == "git" and word == "-C":
            next(words, None)
        elif not word.startswith("-"):
            chosen = word
            break
    left = [word for word in words if not word.startswith("-")]
    found = {kind for kind, known in table.items() if chosen in known} or {"unknown"}
    if name == "git" and chosen in ("reflog", "stash", "worktree") and left[:1] and left[0] in _REMOVES:
        return {"write", "remove"}
    return {"write"} if name == "git" and chosen in ("branch", "reflog") and left else found
