"""Which exit code an error of the engine has."""

from __future__ import annotations

from typing import Final

from world.errors import RefusedError, WorldProtocolError

USAGE_CODES: Final = frozenset(
    {
        "AMBIGUOUS_RESOURCE",
        "BAD_REFERENCE",
        "COVERAGE_MISSING",
        "DUPLICATE_HANDLER",
        "DUPLICATE_NAME",
        "DUPLICATE_POLICY",
        "DUPLICATE_PROJECTION",
        "EVENT_TOO_LARGE",
        "FILE_UNREADABLE",
        "GLOBAL_SCOPE",
        "INTENT_TOO_LARGE",
        "LITERAL_SECRET",
        "INTERNAL_CONTRADICTION",
        "LINE_TOO_LONG",
        "LOCAL_PREDICATE",
        "LOG_NOT_FOUND",
        "MANIFEST_TOO_LARGE",
        "NOT_A_DIRECT_INTENT",
        "NOT_A_DOMAIN",
        "NOT_A_LOG",
        "NOT_A_SCENARIO",
        "NOT_CANONICAL",
        "NOT_LOADED",
        "NO_CASES",
        "NO_CONFIG",
        "NO_KEY",
        "NO_POLICY_NAMED",
        "PATH_NOT_FOUND",
        "PYTHON_REQUIRED",
        "SCOPE_MISSING",
        "SCOPE_NOT_EXPECTED",
        "SCOPE_TOO_LARGE",
        "SOURCE_TOO_LARGE",
        "TYPE_MISMATCH",
        "UNKNOWN_BINDING",
        "UNKNOWN_RESOURCE_TYPE",
        "UNSUPPORTED_TYPE",
        "UNTRUSTED_CODE",
        "YAML_TOO_LARGE",
    }
)
"""Codes, beside those that begin with INVALID or MALFORMED, of what is wrong whatever the log holds."""


def exit_code_of(error: WorldProtocolError) -> int:
    """Return 2 for what is wrong in itself, 3 for a damaged log, 1 for the rest."""
    if isinstance(error, RefusedError) and (
        error.code in USAGE_CODES or error.code.startswith(("INVALID_", "MALFORMED_"))
    ):
        return 2
    return error.exit_code
