"""JSON text of any value, for output that people and scripts read."""

from __future__ import annotations

from typing import Any

import orjson

__all__ = ["as_text"]


def as_text(value: Any, option: int = 0) -> str:
    """Return a value as JSON text; what JSON does not know is named by its text."""
    try:
        return orjson.dumps(value, default=_plain, option=option | orjson.OPT_PASSTHROUGH_SUBCLASS).decode()
    except TypeError:  # integers beyond 64 bits, lone surrogates in a message
        import json

        return json.dumps(value, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return dict(value)
    if hasattr(value, "to_wire"):
        return value.to_wire()
    if isinstance(value, (list, tuple, set, frozenset)):
        return list(value)
    return str(value)
