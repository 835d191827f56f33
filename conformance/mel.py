"""What other implementations of MEL compare with: from a source to its schema or its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from world.core.mel.compiling import compile_mel
from world.core.mel.diagnostics import Diagnostic
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["mel_of"]


def mel_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """From ``{source}`` to ``{ok, schema, errors, warnings}``, the form of ``tests/vectors/mel.json``.

    The schema is what the source compiles to; whether the engine would load it is not part of the answer.

    Raises:
        RefusedError: ``INVALID_VALUE`` where the source is no text.
    """
    source = given["source"]
    if not isinstance(source, str):
        raise RefusedError(ErrorCode.INVALID_VALUE, f"source is a text, not {source!r:.40}.")
    compiled = compile_mel(source)
    return {
        "ok": compiled.schema is not None,
        "schema": compiled.schema,
        "errors": [_wire(one) for one in compiled.errors],
        "warnings": [_wire(one) for one in compiled.warnings],
    }


def _wire(one: Diagnostic) -> dict[str, Any]:
    return {"code": one.code, "message": one.message, "line": one.line}
