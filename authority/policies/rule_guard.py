"""Guard of rules in Python against clocks, chance, network, files and the like.

A ruling is a function of its case alone, or it cannot be made again. One watch of the thread serves all rules of a
ruling; a rule's attempt ends its call and is its error, which rejects. Queries of the history are reads of the engine
and are not watched. Rules in CEL and Cedar cannot attempt anything.

The guard finds mistakes; it is not a sandbox (see ``projections.purity.guard``). Its texts are recorded in rulings and
compared by rechecks, except for the place: they must not change. Source: design section 6; CARD-policy, CARD-replay.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from authority.policies.rule_composition import AllOf, AnyOf, UnsafeApproveAll
from authority.policies.rules import PythonRule, Rule
from authority.policies.source_hash import RuleSource
from world.code.impure_references import Reference, impure_references
from world.code.impurities import Impurity, Kind
from world.code.run_watch import RunWatch
from world.error_codes import ErrorCode
from world.state.ports import Case, History

RULE_IMPURE: Final = ErrorCode.RULE_IMPURE.value
"""Prefix of the reason of a rule that attempted what its case does not decide."""

ADVICE: Final[dict[Kind, str]] = {
    "clock": "a rule has the time of its case: case.submitted_at",
    "randomness": "a rule takes no chances: its answer depends on the case alone",
    "environment": "a rule reads no process and no machine: give it limits as values of its module",
    "network": "a rule makes no requests: let the intent or the state hold what it needs",
    "files": "a rule reads and writes no files: let the intent or the state hold what it needs",
    "processes": "a rule starts nothing",
    "threads": "a rule answers in the thread that called it",
    "output": "a rule writes nothing; its reason is recorded",
    "mutation": "a case is frozen: answer with an opinion",
    "interpreter": "a rule does not change the interpreter",
}
"""What to do instead, by kind."""

_PLACE: Final = re.compile(rf"({RULE_IMPURE}: it (?:uses|changes) .{{1,300}}?) at \S[^;]*;")
_FIELDS: Final = [one.name for one in fields(Case)]
_VALUES: Final = attrgetter(*_FIELDS)
_HISTORY: Final = _FIELDS.index("history")


class RuleGuard:
    """Guard of the Python rules of one ruling; a context manager.

    Args:
        case: the case of the ruling.
    """

    def __init__(self, case: Case) -> None:
        """Create a guard that watches nothing yet."""
        self._watch = RunWatch()
        values = list(_VALUES(case))
        values[_HISTORY] = _UnwatchedHistory(case.history, self._watch)
        self.case = Case(*values)

    def __enter__(self) -> RuleGuard:
        """Begin to watch the thread."""
        self._watch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        """End the watch."""
        self._watch.__exit__(*error)

    def call(self, call: Callable[..., Any], *given: Any) -> tuple[Any, str | None]:
        """Return a rule's answer, and the reason of its fault where it was impure."""
        answer, found = self._watch.call(call, *given)
        return answer, None if found is None else fault_of(*found)


class _UnwatchedHistory:
    """The history of a case, which the engine reads without a watch."""

    __slots__ = ("_history", "_watch")

    def __init__(self, history: History, watch: RunWatch) -> None:
        self._history = history
        self._watch = watch

    def count(self, **conditions: Any) -> int:
        with self._watch.paused():
            return self._history.count(**conditions)

    def sum(self, path: str, **conditions: Any) -> int | float:
        with self._watch.paused():
            return self._history.sum(path, **conditions)


def fault_of(found: Impurity, where: str) -> str:
    """Return the reason of an impure rule's fault."""
    at = f" at {where}" if where else ""
    does = "changes" if found.kind == "mutation" else "uses"
    text = f"{RULE_IMPURE}: it {does} {found.what}{at}; {ADVICE[found.kind]}"
    return text.encode("utf-8", "backslashreplace").decode()  # file names need not be Unicode


def without_place(reason: str) -> str:
    """Return a reason without the place of an attempt, which is no part of a policy's identity."""
    return _PLACE.sub(r"\1;", reason) if RULE_IMPURE in reason else reason


def is_python(rule: Rule) -> bool:
    """Return whether a rule runs Python code of its author."""
    if isinstance(rule, (AllOf, AnyOf)):
        return any(is_python(part) for part in rule.rules)
    source = getattr(rule, "source", None)
    is_other_language = isinstance(source, RuleSource) and source.language in ("cel", "cedar")
    return not is_other_language and not isinstance(rule, UnsafeApproveAll)


def impure_in(rule: Rule) -> list[Reference]:
    """Return the impure functions that a rule's code names, with their places."""
    if isinstance(rule, (AllOf, AnyOf)):
        return [found for part in rule.rules for found in impure_in(part)]
    if not is_python(rule):
        return []
    return impure_references(rule.function if isinstance(rule, PythonRule) else type(rule).__call__)
