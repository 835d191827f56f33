"""Messages of JSON-RPC that cannot be used though the id in them can be read, so that what waits for them ends.

The SDK drops a message with half a surrogate pair, an integer of more than 4,300 digits, nesting beyond its limit or
members of another form, reads a request with an invalid id as a notification, and writes NaN and infinities as null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    RequestId,
    jsonrpc_message_adapter,
)

__all__ = ["UNUSABLE_ANSWER", "Unusable", "in_place_of", "read_message"]

UNUSABLE_ANSWER: Final = -32050
"""Code of the error that takes the place of an answer that cannot be used; of the range that JSON-RPC leaves free."""

UNREADABLE: Final = "a request that cannot be read"
"""Method in the place of that of such a request."""

MAX_DIGITS: Final = 4_300
MAX_SCANNED: Final = 65_536
"""Characters of a text that is no JSON for this process, in which its id is searched."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"\s*:?|[{}\[\]]|[^\s"{}\[\],:]+')
_SUSPECT: Final = re.compile(r"NaN|Infinity|[eE]\+?\d\d|\d{290}")
"""What the text of a number has that is not finite; texts may have it as well."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A message that cannot be used.

    Args:
        request_id: its id; None where none can be read.
        is_answer: whether it answers a request, and is none.
        why: what is wrong with it, a sentence.
        is_json: whether its text is JSON, and so is not cut off.
    """

    request_id: RequestId | None
    is_answer: bool
    why: str
    is_json: bool

    def error(self, code: int) -> JSONRPCError:
        """Return the error that answers the message, or takes its place."""
        return JSONRPCError(jsonrpc="2.0", id=self.request_id, error=ErrorData(code=code, message=self.why))


def read_message(line: bytes | str) -> JSONRPCMessage | Unusable:
    """Return a message, or why it cannot be used.

    Args:
        line: the text of one message.
    """
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return _described(line, "The message is no JSON-RPC that can be read and written again.")
    if isinstance(message, JSONRPCNotification) and "id" in _members(line)[0]:
        return _described(line, "The id is neither a text nor an integer.")
    try:
        if _SUSPECT.search(line if isinstance(line, str) else line.decode()):
            json.dumps(message, default=vars, allow_nan=False)
    except ValueError:
        return _described(line, "The message has a number that JSON cannot represent, such as NaN.")
    return message


def in_place_of(found: Unusable) -> JSONRPCMessage | None:
    """Return what takes the place of a message of an upstream: an error for an answer, which so ends what waits for it.

    A request becomes one whose method is not known, and is refused; None where there is no id.
    """
    if found.request_id is None:
        return None
    if found.is_answer:
        return found.error(UNUSABLE_ANSWER)
    return JSONRPCRequest(jsonrpc="2.0", id=found.request_id, method=UNREADABLE)


def _described(line: bytes | str, why: str) -> Unusable:
    members, is_json = _members(line)
    found = members.get("id")
    is_id = isinstance(found, str | int) and not isinstance(found, bool)
    if isinstance(found, str) and any("\ud800" <= one <= "\udfff" for one in found):
        is_id = False  # half a surrogate pair cannot be written
    return Unusable(found if is_id else None, "method" not in members, why, is_json)


def _members(line: bytes | str) -> tuple[dict[str, Any], bool]:
    """Return the members of a message, and whether it is JSON, read with less strictness; else some are missing."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    try:
        found = json.loads(text, parse_int=_integer)
    except RecursionError:
        return dict(_scanned(text[:MAX_SCANNED])), True
    except ValueError:
        return dict(_scanned(text[:MAX_SCANNED])), False
    return (found, True) if isinstance(found, dict) else ({}, True)


def _integer(digits: str) -> int | None:
    return int(digits) if len(digits) <= MAX_DIGITS else None


def _scanned(text: str) -> Iterator[tuple[str, Any]]:
    """Yield the members of the outermost object whose values are texts or numbers."""
    depth, name = 0, ""
    for found in _TOKEN.finditer(text):
        token = found.group()
        if token in ("{", "["):
            depth, name = depth + 1, ""
        elif token in ("}", "]"):
            depth -= 1
        elif depth == 1 and token.endswith(":"):
            name = token[:-1]
        elif depth == 1 and name:
            with suppress(ValueError):
                yield json.loads(name), json.loads(token)
            name = ""
