"""Spans of requests, which FastAPI makes: their parent is the ``traceparent`` of the request."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from fastapi.telemetry import TelemetryConfig

from worldprotocol.api.realm import Realm

__all__ = ["TELEMETRY", "is_untraced", "name_spans"]

UNTRACED: Final = ("/healthz", "/readyz", "/metrics", "/stream")
"""Ends of paths without a span: what is asked every few seconds, and what lasts for hours."""

SECRET: Final = b"code="
"""Parameter of a query that signs a browser in; spans have the query."""


def is_untraced(scope: MutableMapping[str, Any]) -> bool:
    """Return whether a request has no span."""
    return scope["path"].endswith(UNTRACED) or SECRET in scope.get("query_string", b"")


TELEMETRY: Final[TelemetryConfig] = {
    "auto_configure": False,  # worldprotocol.api.telemetry.provider does
    "logs": False,
    "operation_spans": False,
    "exclude": is_untraced,
}


def name_spans(realm: Realm, name: str) -> None:
    """Give the spans of a realm the name by which the server serves it."""
    parts = realm.parts
    if parts is not None and parts.tracing is not None:
        parts.tracing.realm = name
