"""Repeated run of a rule in code that records the line of its answer and its local values there.

A rule is a pure function of its case, so the repeated run should give the same answer; a different answer is reported.
The module is for explanations only: the pipeline does not import it. It traces the rule's own code, without the
functions that the rule calls.
"""

from __future__ import annotations

import inspect
import linecache
import sys
from collections.abc import Mapping
from types import CodeType, FrameType
from typing import Any, Final

from authority.policies.opinions import OPINIONS, Opinion
from authority.policies.policy import TIMED_OUT, Policy
from authority.policies.rules import PythonRule
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.limits import Limits
from world.model.canonical_json import canonical_text
from world.model.immutable_json import freeze
from world.state.ports import Case

MAX_VALUES: Final = 20
"""Maximum number of local values that are shown for one rule."""

MAX_JSON: Final = 4_000
"""Maximum length of a local value as JSON, in characters; a longer value is shown as shortened text."""

MAX_VALUE: Final = 200
"""Maximum length of a local value that is not shown as JSON, in characters."""

MAX_DEPTH: Final = 8
"""Maximum nesting of a value that is shown as JSON, in levels."""


_IN_TIME: Final = TimeLimit(Limits().max_call_ms)


class _FunctionTracer:
    """Tracer of the code of one function that records its last line and local values."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.line: int | None = None
        self.values: Mapping[str, Any] = {}

    def begin(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Handle a call: trace that of the function."""
        return self.follow if frame.f_code is self.code else None

    def follow(self, frame: FrameType, event: str, argument: Any) -> Any:
        """Handle a step of the function: record the current line."""
        if event in ("line", "return", "exception"):
            self.line = frame.f_lineno
        if event == "return":
            self.values = dict(frame.f_locals)
        return self.follow


def answered_from(policy: Policy, outcome: Mapping[str, Any], case: Case) -> dict[str, Any] | None:
    """Run a rule again and return the origin of its answer.

    Args:
        policy: the loaded policy, with the hash of the one that judged.
        outcome: the rule's recorded outcome, in wire form.
        case: the recorded case.

    Returns:
        ``line`` and ``code`` of the last executed line, ``values``, the local values there, and ``now``, the new
        answer where it differs from the recorded one. None for a rule that is not a function, and for a recorded
        timeout.
    """
    rule = next((one for one in policy.rules if one.name == outcome["rule"]), None)
    if not isinstance(rule, PythonRule) or str(outcome.get("reason", "")).startswith(TIMED_OUT):
        return None
    function = inspect.unwrap(rule.function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    tracer = _FunctionTracer(code)
    before = sys.gettrace()
    sys.settrace(tracer.begin)
    try:
        answer = _answer(_IN_TIME.run(lambda: rule(case)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a rule raises is an error in the trace, sys.exit() too
        answer = "error"
    finally:
        sys.settrace(before)
    if tracer.line is None:
        return None
    origin: dict[str, Any] = {
        "line": tracer.line,
        "code": linecache.getline(code.co_filename, tracer.line).strip(),
        "values": _values(tracer.values),
    }
    return origin if answer == outcome["answer"] else {**origin, "now": answer}


def _answer(opinion: Opinion | None) -> str:
    if opinion is None:
        return "none"
    return opinion.answer if type(opinion) in OPINIONS else "error"


def _values(local: Mapping[str, Any]) -> dict[str, Any]:
    """Return the displayed form of local values: JSON as it is, other values by their text; without the case."""
    shown = {name: value for name, value in local.items() if not isinstance(value, Case)}
    return {name: _shown(shown[name]) for name in list(shown)[:MAX_VALUES]}


def _shown(value: Any) -> Any:
    try:
        if _depth(value) <= MAX_DEPTH and len(canonical_text(value)) <= MAX_JSON:
            return freeze(value)
    except (RefusedError, RecursionError):
        pass
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - the type of a value may be foreign code
        text = type(value).__name__
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)
