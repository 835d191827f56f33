"""A rule in code, asked again to see where its answer comes from: the line it left by, and its values there.

A rule is a pure function of its case, so it says the same again; whether it does is told. This is for explanations
only: nothing of the pipeline imports it. It watches the rule's own code and nothing that the rule calls.
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
"""Local values that are shown of one rule."""

MAX_JSON: Final = 4_000
"""Characters of a local value as JSON; of a longer one the beginning is shown."""

MAX_VALUE: Final = 200
"""Characters of a local value that is not shown as JSON."""

MAX_DEPTH: Final = 8
"""How deep a value may be that is shown as JSON."""


_IN_TIME: Final = TimeLimit(Limits().max_call_ms)


class _FunctionTracer:
    """Follows the code of one function, and remembers where it was left."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.line: int | None = None
        self.values: Mapping[str, Any] = {}

    def begin(self, frame: FrameType, event: str, argument: Any) -> Any:
        """See every call; follow the rule's own."""
        return self.follow if frame.f_code is self.code else None

    def follow(self, frame: FrameType, event: str, argument: Any) -> Any:
        """See every step; the last one counts."""
        if event in ("line", "return", "exception"):
            self.line = frame.f_lineno
        if event == "return":
            self.values = dict(frame.f_locals)
        return self.follow


def answered_from(policy: Policy, outcome: Mapping[str, Any], case: Case) -> dict[str, Any] | None:
    """Return where a rule's answer comes from.

    Args:
        policy: the policy at hand, which is the one that judged.
        outcome: what the rule said, in wire form.
        case: as it was.

    Returns:
        ``line`` and ``code`` of where it was left, ``values``: its local values then, and ``now`` where it answers
        otherwise than was recorded. None for a rule that is no function, and for one that took too long.
    """
    rule = next((one for one in policy.rules if one.name == outcome["rule"]), None)
    if not isinstance(rule, PythonRule) or str(outcome.get("reason", "")).startswith(TIMED_OUT):
        return None
    function = inspect.unwrap(rule.function)
    code = getattr(function, "__code__", None)
    if code is None:
        return None
    watch = _FunctionTracer(code)
    before = sys.gettrace()
    sys.settrace(watch.begin)
    try:
        answer = _answer(_IN_TIME.run(lambda: rule(case)))
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001 - whatever a rule raises is an error in the trace, sys.exit() too
        answer = "error"
    finally:
        sys.settrace(before)
    if watch.line is None:
        return None
    told: dict[str, Any] = {
        "line": watch.line,
        "code": linecache.getline(code.co_filename, watch.line).strip(),
        "values": _values(watch.values),
    }
    return told if answer == outcome["answer"] else {**told, "now": answer}


def _answer(opinion: Opinion | None) -> str:
    if opinion is None:
        return "none"
    return opinion.answer if type(opinion) in OPINIONS else "error"


def _values(local: Mapping[str, Any]) -> dict[str, Any]:
    """Return what can be shown of local values: JSON as it is, anything else by its words; the case is known."""
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
    except Exception:  # noqa: BLE001 - a value of somebody else's type
        text = type(value).__name__
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


def _depth(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + max(map(_depth, inner), default=0)
