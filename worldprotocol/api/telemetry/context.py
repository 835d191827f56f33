"""W3C trace contexts: what a proposal records of the request that submitted it."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = ["TRACEPARENT", "TRACES", "recorded_context", "traced", "tracer_provider"]

TRACES: Final = "opentelemetry.trace"
"""The module that a program has imported if it makes traces."""

TRACEPARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


def tracer_provider() -> Any | None:
    """Return the provider of tracers that this program has configured; None where it has configured none."""
    if TRACES not in sys.modules:
        return None
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else provider


def traced(given: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the trace of a submission with the ``traceparent`` of the current span, unless it has one.

    Args:
        given: what the caller wants to find in the log.
    """
    from opentelemetry import trace

    current = trace.get_current_span().get_span_context()
    if not current.is_valid or (given is not None and "traceparent" in given):
        return given
    parent = f"00-{current.trace_id:032x}-{current.span_id:016x}-{int(current.trace_flags):02x}"
    return {**(given or {}), "traceparent": parent}


def recorded_context(recorded: Mapping[str, Any] | None) -> SpanContext | None:
    """Return the span context that a proposal has recorded; None without a valid one."""
    from opentelemetry.trace import SpanContext, TraceFlags

    text = None if recorded is None else recorded.get("traceparent")
    found = TRACEPARENT.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    context = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(flags))
    return context if context.is_valid else None
