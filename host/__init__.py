"""Host: executes approved proposals. The only package that runs effects.

``Host.step`` computes, ``Host.perform`` runs one effect through the handler that an ``EffectRegistry`` holds, within
its time limit; every failure of a handler becomes an error value. ``rebuild_journal`` and
``recheck_execution`` repeat an execution from its record, without any effect.
Source: design sections 4 and 8; HC-compute, HC-handlers, HC-journal, INT-13.5.
"""

from host.effect_call import DoubtfulEffect, EffectCallInfo, idempotency_key
from host.effect_registry import EffectRegistry
from host.effects import (
    DEFAULT_TIME_LIMIT_MS,
    Answer,
    EffectFailure,
    EffectHandler,
    EffectOptions,
    EffectResult,
    HandlerOptions,
    Touch,
    handler,
)
from host.enforcement import SCOPE_VIOLATION, check_enforcement, first_outside
from host.executor import STATE_CONFLICT, Host, HostOptions
from host.external import ExternalOptions, external
from host.journal import DroppedResult, ExecutionJournal, rebuild_journal
from host.loading import find_effects, load_handlers
from host.recheck import recheck_execution

__all__ = [
    "DEFAULT_TIME_LIMIT_MS",
    "SCOPE_VIOLATION",
    "STATE_CONFLICT",
    "Answer",
    "DoubtfulEffect",
    "DroppedResult",
    "EffectCallInfo",
    "EffectFailure",
    "EffectHandler",
    "EffectOptions",
    "EffectRegistry",
    "EffectResult",
    "ExecutionJournal",
    "ExternalOptions",
    "HandlerOptions",
    "Host",
    "HostOptions",
    "Touch",
    "check_enforcement",
    "external",
    "find_effects",
    "first_outside",
    "handler",
    "idempotency_key",
    "load_handlers",
    "rebuild_journal",
    "recheck_execution",
]
