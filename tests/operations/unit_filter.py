"""Runs a command under the system call filter of the shipped unit, without systemd.

``python unit_filter.py COMMAND...`` installs a seccomp filter made of the unit's lines and executes the command.
The groups of system calls are those that systemd defines, recorded in ``system_calls.toml``.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["UNIT", "directives", "permitted"]

UNIT = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "world-protocol.service"
CALLS = Path(__file__).with_name("system_calls.toml")

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10}
NEW_NAMESPACES = 0x7E020000
WRITABLE, EXECUTABLE = 2, 4

LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2


def directives() -> dict[str, list[str]]:
    """Return the values of each directive of the unit, in their order."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        name, is_given, value = line.partition("=")
        if is_given and not line.startswith("#"):
            found.setdefault(name, []).append(value.strip())
    return found


def _calls_of(word: str, groups: Mapping[str, str]) -> set[str]:
    if not word.startswith("@"):
        return {word}
    return set().union(*(_calls_of(one, groups) for one in groups[word].split()))


def permitted() -> set[str]:
    """Return the system calls that the unit permits: what its lines list, without what lines with ``~`` list."""
    groups = tomllib.loads(CALLS.read_text(encoding="utf-8"))["groups"]
    found = _calls_of("@default", groups)
    for line in directives()["SystemCallFilter"]:
        named: set[str] = set()
        for word in line.removeprefix("~").split():
            named |= _calls_of(word, groups)
        found = found - named if line.startswith("~") else found | named
    return found


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _argument(index: int) -> bytes:
    return _step(LOAD, 16 + 8 * index)


def _refused_by_arguments() -> dict[str, list[bytes]]:
    """Return by system call the steps that refuse some arguments, as other directives of the unit do."""
    lines = directives()
    found: dict[str, list[bytes]] = {}
    if lines.get("RestrictNamespaces") == ["true"]:
        new = [_argument(0), _step(ANY_BIT, NEW_NAMESPACES, 0, 1), _step(RETURN, REFUSE)]
        found |= {"clone": new, "unshare": new}
    if lines.get("MemoryDenyWriteExecute") == ["true"]:
        executable = [_argument(2), _step(ANY_BIT, EXECUTABLE, 0, 1), _step(RETURN, REFUSE)]
        both = [_argument(2), _step(ANY_BIT, WRITABLE, 0, 2), _step(ANY_BIT, EXECUTABLE, 0, 1), _step(RETURN, REFUSE)]
        found |= {"mprotect": executable, "pkey_mprotect": executable, "mmap": both}
    families = [FAMILIES[one] for one in lines["RestrictAddressFamilies"][0].split()]
    known = [_step(EQUAL, one, len(families) - at, 0) for at, one in enumerate(families)]
    found["socket"] = [_argument(0), *known, _step(RETURN, REFUSE)]
    return found


def _program() -> bytes:
    machine = platform.machine()
    listed = tomllib.loads(CALLS.read_text(encoding="utf-8"))["numbers"][machine].split()
    numbers = {name: int(number) for name, _, number in (one.partition("=") for one in listed)}
    checks = _refused_by_arguments()

    def steps() -> Iterator[bytes]:
        yield _step(LOAD, 4)
        yield _step(EQUAL, ARCHITECTURES[machine], 1, 0)
        yield _step(RETURN, REFUSE)
        yield _step(LOAD, 0)
        for name in sorted(permitted() & numbers.keys()):
            then = [*checks.get(name, ()), _step(RETURN, ALLOW)]
            yield _step(EQUAL, numbers[name], 0, len(then))
            yield from then
        yield _step(RETURN, REFUSE)

    return b"".join(steps())


def main() -> None:
    """Install the filter, and execute the command."""
    program = _program()
    code = ctypes.create_string_buffer(program)
    header = struct.pack("=HxxxxxxQ", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_SECCOMP, FILTER, header, 0, 0)):
        arguments = [one if isinstance(one, bytes) else ctypes.c_ulong(one) for one in call[1:]]
        if libc.prctl(call[0], *arguments):
            raise OSError(ctypes.get_errno(), "prctl")
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    main()
