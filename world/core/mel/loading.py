"""MEL sources as domains: the portable schema of a source without any error, and of faults the places in the source."""

from __future__ import annotations

from typing import Any

from world.core.lint import schema_faults
from world.core.mel.compiling import CompiledMel, compile_mel
from world.core.mel.diagnostics import Diagnostic
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import freeze

__all__ = ["checked_mel", "refusal", "schema_of_mel"]

_SHOWN = 3  # errors in the message; details have all


def checked_mel(text: str, name: str) -> CompiledMel:
    """Compile a source, and add the faults of its schema to its errors, each at its declaration.

    Args:
        text: the MEL source of one domain.
        name: of its file, for messages.

    Returns:
        What ``compile_mel`` returns; the schema is None where it has faults.
    """
    compiled = compile_mel(text, name)
    if compiled.schema is None:
        return compiled
    for fault in schema_faults(freeze(compiled.schema)):
        start, end = _place(compiled, fault.path)
        line, column = compiled.source.position(start)
        compiled.errors.append(Diagnostic(fault.code, f"{fault.path}: {fault.message}", start, end, line, column))
    if compiled.errors:
        compiled.schema = None
        compiled.errors.sort(key=lambda one: (one.start, one.end))
    return compiled


def schema_of_mel(text: str, name: str) -> Any:
    """Return the frozen portable schema of a source, with its hash.

    Raises:
        RefusedError: ``INVALID_MEL``; ``details["errors"]`` has code, message, line and column of every error.
    """
    compiled = checked_mel(text, name)
    if compiled.schema is None:
        raise refusal(compiled)
    return freeze(compiled.schema)


def refusal(compiled: CompiledMel) -> RefusedError:
    """Return the refusal of a source with errors, ``INVALID_MEL``; its message shows the first of them."""
    count = len(compiled.errors)
    shown = "\n".join(compiled.source.show(one) for one in compiled.errors[:_SHOWN])
    more = f"\n(and {count - _SHOWN} more)" if count > _SHOWN else ""
    message = f"The MEL source has {count} error{'s' if count > 1 else ''}:\n{shown}{more}"
    return RefusedError(ErrorCode.INVALID_MEL, message, errors=[one.to_wire() for one in compiled.errors])


def _place(compiled: CompiledMel, path: str) -> tuple[int, int]:
    """Return the span of the declaration that a path of the schema is in."""
    inside = [one for one in compiled.places if path == one or path.startswith((f"{one}.", f"{one}["))]
    return compiled.places[max(inside, key=len)] if inside else compiled.places["$"]
