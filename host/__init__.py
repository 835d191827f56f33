"""The host: an approved proposal in, an outcome out. The only room that runs effects.

``Host`` computes (``step``) and makes effects (``perform``) through the handlers of an ``EffectRegistry``,
each within its time limit; whatever goes wrong there becomes an error value. ``rebuild_journal`` and
``recheck_execution`` perform an execution again from its record, without any effect.
Source: design sections 4 and 8; HC-compute, HC-handlers, HC-journal, INT-13.5.
"""

from host.effects import (
    DEFAULT_TIME_LIMIT_MS,
    Answer,
    EffectCallInfo,
    EffectFailure,
    EffectHandler,
    EffectRegistry,
    EffectResult,
    Touch,
    handler,
    idempotency_key,
)
from host.enforcement import SCOPE_VIOLATION, check_enforcement, first_outside
from host.executor import STATE_CONFLICT, Host
from host.journal import DroppedResult, ExecutionJournal, rebuild_journal
from host.loading import find_effects, load_handlers
from host.recheck import recheck_execution

__all__ = [
    "DEFAULT_TIME_LIMIT_MS",
    "SCOPE_VIOLATION",
    "STATE_CONFLICT",
    "Answer",
    "DroppedResult",
    "EffectCallInfo",
    "EffectFailure",
    "EffectHandler",
    "EffectRegistry",
    "EffectResult",
    "ExecutionJournal",
    "Host",
    "Touch",
    "check_enforcement",
    "find_effects",
    "first_outside",
    "handler",
    "idempotency_key",
    "load_handlers",
    "rebuild_journal",
    "recheck_execution",
]
