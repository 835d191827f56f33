"""Canonical JSON (RFC 8785): one text for one value, and hashes of it.

``canonical_bytes`` accepts what ``world.model.immutable_json.freeze`` accepts and refuses the rest with the path to the
value. The text always reads back to a value with the same text.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, NoReturn

from world.errors import RefusedError
from world.model.frozen_text import frozen_text
from world.model.immutable_json import freeze, utf16_key

__all__ = ["canonical_bytes", "canonical_text", "digest", "read_json", "sha256_hex", "utf16_key"]


def canonical_bytes(value: Any) -> bytes:
    """Return the RFC 8785 text of a JSON value, in UTF-8.

    Raises:
        RefusedError: ``NOT_CANONICAL``, with the path to the value that has no canonical text.
    """
    return frozen_text(freeze(value))


def canonical_text(value: Any) -> str:
    """Return the RFC 8785 text of a JSON value; the same refusals as ``canonical_bytes``."""
    return canonical_bytes(value).decode()


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of ``data`` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def digest(value: Any) -> str:
    """Return SHA-256(JCS(value)) as lower-case hex; the same refusals as ``canonical_bytes``."""
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
        whole = text if isinstance(text, str) else bytes(text).decode()
        value = json.loads(whole, object_pairs_hook=_members, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise RefusedError(
            "MALFORMED_JSON",
            f"This is no JSON: {error.msg} at line {error.lineno}, column {error.colno}.",
            line=error.lineno,
            column=error.colno,
        ) from None
    except UnicodeDecodeError as error:
        raise RefusedError(
            "MALFORMED_JSON", f"This is no UTF-8 text: byte {error.start} is wrong.", byte=error.start
        ) from None
    except RecursionError:
        raise RefusedError("NOT_CANONICAL", "The JSON is nested too deep to be read.", path="$") from None
    except ValueError as error:  # the interpreter's bound on the digits of an integer
        raise RefusedError("MALFORMED_JSON", f"A number cannot be read: {error}.") from None
    return freeze(value)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise RefusedError("MALFORMED_JSON", f"The key {key!r} stands twice in one object.", key=key)
            seen.add(key)
    return members


def _refuse_constant(name: str) -> NoReturn:
    raise RefusedError("MALFORMED_JSON", f"{name} is no JSON number.", constant=name)
