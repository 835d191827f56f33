"""The filter of system calls, run by an interpreter of its language."""

from __future__ import annotations

import struct

KILL, ERRNO, NOTIFY, ALLOWED = 0x80000000, 0x00050000, 0x7FC00000, 0x7FFF0000


def answer(code: bytes, arch: int, number: int, *arguments: int) -> int:
    """Run a filter as the kernel does."""
    data = struct.pack("=iIQ6Q", number, arch, 0, *(list(arguments) + [0] * 6)[:6])
    steps, at, register = [struct.unpack_from("=HBBI", code, here) for here in range(0, len(code), 8)], 0, 0
    while True:
        operation, true, false, value = steps[at]
        at += 1
        if operation == 0x20:
            (register,) = struct.unpack_from("=I", data, value)
        elif operation == 0x06:
            return value
        elif operation == 0x54:
            register &= value
        else:
            tests = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}
            at += true if tests[operation] else false
