"""Canonical JSON (RFC 8785): one text per value, and its hash.

``canonical_bytes`` accepts the values that ``world.model.immutable_json.freeze`` accepts and refuses all others with
the path to the value. Parsing the text yields a value with the same text.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable.frozen_text import frozen_text
from world.model.immutable_json import FrozenDict, FrozenList, freeze, utf16_key

__all__ = ["canonical_bytes", "canonical_text", "digest", "read_json", "sha256_hex", "utf16_key"]


def canonical_bytes(value: Any) -> bytes:
    """Return the RFC 8785 text of a JSON value, in UTF-8.

    Raises:
        RefusedError: ``NOT_CANONICAL``, with the path to the value that has no canonical text.
    """
    kind = type(value)
    return frozen_text(value if kind is FrozenDict or kind is FrozenList else freeze(value))


def canonical_text(value: Any) -> str:
    """Return the RFC 8785 text of a JSON value; raises as ``canonical_bytes`` does."""
    return canonical_bytes(value).decode()


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """Return SHA-256(JCS(value)) as lower-case hex; raises as ``canonical_bytes`` does."""
    return sha256_hex(canonical_bytes(value))


def read_json(text: str | bytes) -> Any:
    """Read JSON text strictly and return it frozen.

    Args:
        text: one JSON value; bytes are UTF-8.

    Raises:
        RefusedError: ``MALFORMED_JSON`` with line and column; also for repeated keys, NaN and Infinity.
        RefusedError: ``NOT_CANONICAL`` for values that have no canonical text.
    """
    try:
        decoded = text if isinstance(text, str) else bytes(text).decode()
        value = json.loads(decoded, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise RefusedError(
            ErrorCode.MALFORMED_JSON,
            f"The text is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            line=error.lineno,
            column=error.colno,
        ) from None
    except UnicodeDecodeError as error:
        raise RefusedError(
            ErrorCode.MALFORMED_JSON, f"The text is not valid UTF-8: byte {error.start} is invalid.", byte=error.start
        ) from None
    except RecursionError:
        raise RefusedError(ErrorCode.NOT_CANONICAL, "The JSON is nested too deeply to be read.", path="$") from None
    except ValueError as error:  # the interpreter limits the number of digits of an integer
        raise RefusedError(ErrorCode.MALFORMED_JSON, f"A number cannot be read: {error}.") from None
    return freeze(value)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RefusedError(
                    ErrorCode.MALFORMED_JSON, f"The key {key!r} occurs twice in one object; keep one of them.", key=key
                )
            seen.add(key)
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError(
        ErrorCode.MALFORMED_JSON, f"{name} is not a JSON number; use a finite number or null.", constant=name
    )
