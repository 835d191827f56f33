"""Parser of strace output: joins its lines into finished system calls.

The input is the output of ``strace -f -q -y -x``: each line begins with a process id; an interrupted call
is written as ``<unfinished ...>`` and ``<... name resumed>``; strings are C strings; a descriptor is followed by its
path in angle brackets, ``3</w/a>``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

__all__ = ["Lines", "SystemCall", "ThreadExit", "descriptor_path", "string"]

_LINE: Final = re.compile(r"(?:\[pid\s+)?(\d+)\]?\s+(.*)", re.DOTALL)
_BEGIN: Final = re.compile(r"([a-z_][a-z0-9_]*)\(")
_RESUMED: Final = re.compile(r"<\.\.\. ([a-z_][a-z0-9_]*) resumed>\s?(.*)", re.DOTALL)
_UNFINISHED: Final = re.compile(r"\s*<(?:unfinished|pid changed to \d+) \.\.\.>\s*\Z")
_DETACHED: Final = re.compile(r"\s*<detached \.\.\.>\s*\Z")
_RESULT: Final = re.compile(r"\s*=\s+(-?\d+|\?|0x[0-9a-f]+)(<(?:[^<>]*)>)?(?:\([^)]*\))?(?:\s+([A-Z][A-Z0-9_]*))?")
_SUPERSEDED: Final = re.compile(r"\+\+\+ superseded by execve in pid (\d+) \+\+\+")
_DESCRIPTOR: Final = re.compile(r"(?:AT_FDCWD|-?\d+)<([^<>]*)>")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_SHORT: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "v": b"\v", "f": b"\f", "a": b"\a", "b": b"\b", "e": b"\x1b"}
_ANNOTATION: Final = re.compile(r"<[^<>]*>")
_OPENING: Final = {"(": ")", "[": "]", "{": "}"}


@dataclass(frozen=True, slots=True)
class SystemCall:
    """One finished system call.

    Args:
        pid: the thread's id.
        name: its name.
        arguments: each as strace shows it.
        result: its return value; None where it is not shown.
        opened: the path of the returned descriptor, as strace shows it.
        error: the name of its error, None where it succeeded.
    """

    pid: int
    name: str
    arguments: tuple[str, ...]
    result: int | None
    opened: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadExit:
    """The end of a process or thread."""

    pid: int


class Lines:
    """Joins the lines of one trace; ``waiting`` has the threads with an unfinished call."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self._unfinished: dict[int, str] = {}

    @property
    def waiting(self) -> dict[int, str]:
        """The unfinished call of each thread, by its id."""
        return self._unfinished

    def read(self, line: str) -> Iterator[SystemCall | ThreadExit]:
        """Yield the calls that a line completes; lines of signals and malformed lines complete none.

        Args:
            line: with or without its end.
        """
        match = _LINE.match(line.rstrip("\n"))
        if match is None:
            return
        pid, text = int(match[1]), match[2]
        if text.startswith("+++"):
            yield from self._ended(pid, text)
        elif resumed := _RESUMED.match(text):
            begun = self._unfinished.pop(pid, None)
            if begun is not None and begun.startswith(f"{resumed[1]}("):
                yield from self._call(pid, begun + resumed[2])
        elif _UNFINISHED.search(text):
            self._unfinished[pid] = _UNFINISHED.sub("", text)
        elif not _DETACHED.search(text):
            yield from self._call(pid, text)

    def _ended(self, pid: int, text: str) -> Iterator[ThreadExit]:
        superseded = _SUPERSEDED.match(text)
        if superseded:  # a thread that calls execve continues as its process
            begun = self._unfinished.pop(int(superseded[1]), None)
            if begun is not None:
                self._unfinished[pid] = begun
            yield ThreadExit(int(superseded[1]))
        else:
            self._unfinished.pop(pid, None)
            yield ThreadExit(pid)

    @staticmethod
    def _call(pid: int, text: str) -> Iterator[SystemCall]:
        begin = _BEGIN.match(text)
        if begin is None:
            return
        arguments, end = _arguments(text, begin.end())
        result = _RESULT.match(text, end)
        if result is None:
            return
        number = None if result[1] == "?" else int(result[1], 0)
        opened = result[2][1:-1] if result[2] else None
        error = result[3]
        if number is not None and number >= 0:
            error = None
        yield SystemCall(pid, begin[1], arguments, number, opened, error)


def _arguments(text: str, start: int) -> tuple[tuple[str, ...], int]:
    """Return the arguments after the opening parenthesis, and the index of their end."""
    arguments: list[str] = []
    closing: list[str] = [")"]
    first = at = start
    while at < len(text):
        sign = text[at]
        if sign == '"':
            at = _string_end(text, at)
            continue
        if sign == "<" and (annotation := _ANNOTATION.match(text, at)):
            at = annotation.end()
            continue
        if sign in _OPENING:
            closing.append(_OPENING[sign])
        elif sign == closing[-1]:
            closing.pop()
            if not closing:
                arguments.append(text[first:at].strip())
                return tuple(one for one in arguments if one), at + 1
        elif sign == "," and len(closing) == 1:
            arguments.append(text[first:at].strip())
            first = at + 1
        at += 1
    return tuple(arguments), at


def _string_end(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1


def string(argument: str) -> bytes | None:
    """Return the bytes of a string argument; None for other arguments and truncated strings."""
    if len(argument) < 2 or argument[0] != '"' or argument[-1] != '"':
        return None
    return _bytes(argument[1:-1])


def descriptor_path(argument: str) -> bytes | None:
    """Return the path of a descriptor argument such as ``3</w/a>``; None where it has none."""
    match = _DESCRIPTOR.match(argument)
    if match is None:
        return None
    path = _bytes(match[1])
    return path if path.startswith(b"/") else None


def _bytes(text: str) -> bytes:
    result = bytearray()
    at = 0
    for escape in _ESCAPE.finditer(text):
        result += text[at : escape.start()].encode("utf-8", "surrogateescape")
        at = escape.end()
        if escape[1]:
            result.append(int(escape[1], 16))
        elif escape[2]:
            result.append(int(escape[2], 8) & 0xFF)
        else:
            result += _SHORT.get(escape[3], escape[3].encode("utf-8", "surrogateescape"))
    return bytes(result + text[at:].encode("utf-8", "surrogateescape"))
