"""Side effects of shell commands on files, hosts and processes.

An unknown command, or one with arguments of unknown effect, is opaque: it is assumed to change anything below its
working directory (KLIS-6 section 5; KO-5.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from conformance.calls.file_commands import FILE_COMMANDS, Reader, Words
from conformance.calls.options import arguments
from conformance.calls.place import CallLocation, Name, malformed
from conformance.calls.transfers import curl, wget
from conformance.calls.words import Redirect, ShellCommand, commands
from world.klis.observation import Seen
from world.klis.predicate import Predicate

__all__ = ["argument_list", "shell"]

MAX_SHELLS: Final = 8
"""Maximum depth of nested shells (``sh -c "sh -c ..."``)."""

_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS: Final = frozenset(
    [
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "for",
        "while",
        "until",
        "do",
        "done",
        "case",
        "esac",
        "select",
        "function",
        "[[",
        "coproc",
        "eval",
        "source",
        ".",
        "trap",
        "alias",
    ]
)
_GROUPS: Final = frozenset({"{", "}", "!"})
_HARMLESS: Final = frozenset(
    [
        "echo",
        "printf",
        "true",
        "false",
        ":",
        "pwd",
        "test",
        "[",
        "exit",
        "return",
        "set",
        "unset",
        "export",
        "sleep",
        "date",
        "whoami",
        "id",
        "uname",
        "which",
        "type",
        "basename",
        "dirname",
        "seq",
        "hostname",
        "printenv",
        "umask",
        "wait",
        "tr",
        "yes",
        "expr",
        "nproc",
        "arch",
        "tty",
        "groups",
        "read",
        "shift",
        "local",
        "readonly",
    ]
)
_SHELLS: Final = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash"})


def shell(text: str, place: CallLocation) -> Iterator[Seen]:
    """Yield the side effects of a command line.

    Raises:
        RefusedError: ``INVALID_CALL``.
    """
    if place.depth >= MAX_SHELLS:
        malformed(f"{place.call!r:.200} has more than {MAX_SHELLS} shells within shells.")
    outer: list[CallLocation] = []
    found = commands(text)
    if not any(command.words or command.redirects for command in found):
        malformed(f"{place.call!r:.200} holds no command.")
    for command in found:
        if command.after == "(":
            outer.append(place)
        elif command.after == ")":
            place = outer.pop()
        yield from _simple(command, place)
        moved = command.words[0].text == "cd" and command.after not in {"|", "|&"} if command.words else False
        if moved:
            place = place.at(command.words[1] if len(command.words) > 1 else Name("", known=False))


def argument_list(words: Words, place: CallLocation) -> Iterator[Seen]:
    """Yield the side effects of one program; the first word is its name.

    Raises:
        RefusedError: ``INVALID_CALL``.
    """
    name = words[0]
    reader = COMMANDS.get(name.text.rpartition("/")[2]) if name.known and name.pattern is None else None
    if reader is None:
        yield from place.opaque(name if name.known and name.pattern is None else None)
    else:
        yield from reader(words[1:], place)


def _simple(command: ShellCommand, place: CallLocation) -> Iterator[Seen]:
    words = [word for word in command.words if word.text not in _GROUPS]
    while words and _ASSIGNMENT.match(words[0].text):
        del words[0]
    if words and words[0].text in _KEYWORDS:
        yield from place.opaque("sh")
    elif words and words[0].text == "cd":
        pass
    elif words:
        yield from argument_list(words, place)
    if command.substitutes:
        yield from place.opaque("sh")
    for redirect in command.redirects:
        yield from _redirected(redirect, place)


def _redirected(redirect: Redirect, place: CallLocation) -> Iterator[Seen]:
    operator, target = redirect.operator, redirect.target
    if operator in {"<<", "<<-", "<<<"}:
        return
    if operator in {"<&", ">&"} and (target.text.rstrip("-").isdigit() or target.text == "-"):
        return
    if operator in {"<", "<&"}:
        yield from place.file(Predicate.CONSUMES, target)
    else:
        yield from place.write(target)


# Processes and hosts


def _runs(short: str = "", *, skip: int = 0) -> Reader:
    """Return the reader of a command that runs another one."""

    def read(words: Words, place: CallLocation) -> Iterator[Seen]:
        left = list(arguments(words, short=short, first=True).operands)[skip:]
        while left and _ASSIGNMENT.match(left[0].text):
            del left[0]
        if left:
            yield from argument_list(left, place)

    return read


def _shell_command(words: Words, place: CallLocation) -> Iterator[Seen]:
    """Read a shell: the text of -c is read, a script is opaque."""
    given = arguments(words, short="oO", first=True)
    if not given.has("c"):
        yield from place.opaque("sh")
    elif not given.operands:
        malformed(f"{place.call!r:.200} has a -c without a command line.")
    elif given.operands[0].known and given.operands[0].pattern is None:
        yield from shell(given.operands[0].text, replace(place, depth=place.depth + 1))
    else:
        yield from place.opaque("sh")


def _started(words: Words, place: CallLocation) -> Iterator[Seen]:
    """Read an agent's tool that runs a program: always opaque (KLIS-6 section 5)."""
    yield from place.opaque(words[0] if words else None)


def _connects(words: Words, place: CallLocation) -> Iterator[Seen]:
    """Read a connection: ``nc host port``, ``connect host:port``."""
    given = arguments(words, short="wpsqiX")
    if given.has("e", "c", "l", "--exec", "--listen"):
        yield from place.opaque("nc")
    names = [name for name in given.operands if name.text not in {"tcp", "udp"}]
    if len(names) == 1 and (found := re.fullmatch(r"(.+):(\d+)", names[0].text)):
        yield from place.connect(found[1], found[2])
    elif len(names) >= 2:
        yield from place.connect(names[0], names[1])
    else:
        malformed(f"{place.call!r:.200} connects to no host and port.")


def _nothing(words: Words, place: CallLocation) -> Iterator[Seen]:
    yield from ()


COMMANDS: Final[dict[str, Reader]] = {
    **dict.fromkeys(_HARMLESS, _nothing),
    **FILE_COMMANDS,
    "curl": curl,
    "wget": wget,
    **dict.fromkeys(["nc", "ncat", "netcat", "telnet", "connect", "dial"], _connects),
    **dict.fromkeys(["command", "builtin", "exec", "nohup", "time", "setsid", "env"], _runs("uCS")),
    "sudo": _runs("ugpCDhrtT"),
    "nice": _runs("n"),
    "timeout": _runs("ks", skip=1),
    "stdbuf": _runs("ioe"),
    **dict.fromkeys(_SHELLS, _shell_command),
    **dict.fromkeys(["run_command", "execute_command", "execute_binary", "run_binary"], _started),
}
"""The readers of known commands, by name."""
