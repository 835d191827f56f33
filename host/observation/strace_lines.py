"""The lines that strace writes, put back together into finished system calls.

What is read is the output of ``strace -f -q -y -x``: each line begins with a process id; a call that was cut in two by
another process is ``<unfinished ...>`` and ``<... name resumed>``; strings are C strings; a descriptor has its path in
angle brackets behind it, ``3</w/a>``.
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
    """One system call that came to its end.

    Args:
        pid: the thread's id.
        name: its name.
        arguments: each as strace shows it.
        result: what it returned; None where that is not told.
        opened: the path of the descriptor that it returned, as strace shows it.
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
    """A process or thread came to its end."""

    pid: int


class Lines:
    """Puts the lines of one trace together; ``waiting`` tells who is within a call that has not ended."""

    def __init__(self) -> None:
        """Begin before the first line."""
        self._unfinished: dict[int, str] = {}

    @property
    def waiting(self) -> dict[int, str]:
        """What each thread began and has not finished, by its id."""
        return self._unfinished

    def read(self, line: str) -> Iterator[SystemCall | ThreadExit]:
        """Yield what a line completes; lines of signals and those that make no sense complete nothing.

        Args:
            line: with or without its end.
        """
        found = _LINE.match(line.rstrip("\n"))
        if found is None:
            return
        pid, text = int(found[1]), found[2]
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
        if superseded:  # a thread that calls execve goes on as its process
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
    """Return the arguments from after the opening parenthesis on, and where they end."""
    found: list[str] = []
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
                found.append(text[first:at].strip())
                return tuple(one for one in found if one), at + 1
        elif sign == "," and len(closing) == 1:
            found.append(text[first:at].strip())
            first = at + 1
        at += 1
    return tuple(found), at


def _string_end(text: str, start: int) -> int:
    at = start + 1
    while at < len(text) and text[at] != '"':
        at += 2 if text[at] == "\\" else 1
    return at + 1


def string(argument: str) -> bytes | None:
    """Return the bytes of a string argument; None for what is no string, or was cut off."""
    if len(argument) < 2 or argument[0] != '"' or argument[-1] != '"':
        return None
    return _bytes(argument[1:-1])


def descriptor_path(argument: str) -> bytes | None:
    """Return the path of a descriptor argument such as ``3</w/a>``; None where it leads to no file."""
    found = _DESCRIPTOR.match(argument)
    if found is None:
        return None
    path = _bytes(found[1])
    return path if path.startswith(b"/") else None


def _bytes(text: str) -> bytes:
    found = bytearray()
    at = 0
    for escape in _ESCAPE.finditer(text):
        found += text[at : escape.start()].encode("utf-8", "surrogateescape")
        at = escape.end()
        if escape[1]:
            found.append(int(escape[1], 16))
        elif escape[2]:
            found.append(int(escape[2], 8) & 0xFF)
        else:
            found += _SHORT.get(escape[3], escape[3].encode("utf-8", "surrogateescape"))
    return bytes(found + text[at:].encode("utf-8", "surrogateescape"))
