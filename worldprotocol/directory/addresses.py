"""Addresses in a directory: complete, usable from every folder, and without a password."""

from __future__ import annotations

import os

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log import parse_address
from world.log.url import MEMORY
from world.masking import masked

__all__ = ["recorded_address"]


def recorded_address(text: str) -> str:
    """Return an address as a directory records it: a file with its whole path, and the name of the log.

    Args:
        text: the address of a log.

    Raises:
        RefusedError: ``INVALID_ADDRESS``, also for an address with a password, and for a log in memory.
    """
    address = parse_address(text)
    if masked(text) != text:
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS,
            f"{masked(text)!r} holds a password, or an option that may be one, and a directory is read by many. Leave "
            "it out, and give the password in PGPASSWORD, in a password file (~/.pgpass), or by a service "
            "(`postgresql:///?service=NAME`).",
        )
    if address.path == MEMORY:
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS, f"{text!r} is a log in memory, which no other process can open; name a file."
        )
    if address.path:
        return f"{os.path.abspath(address.path)}#{address.name}"
    base, mark, _ = text.rpartition("#")
    return f"{base if mark else text}#{address.name}"
