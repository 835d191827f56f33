"""Rules: named pure functions from a case to an opinion or None.

A rule is any object that has a ``name`` and can be called with a case: a decorated function, an object with limits in
its fields, or a rule in another language with an attribute ``source`` (a ``RuleSource``).
Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, overload

from authority.bounded_text import MAX_NAME, is_name
from authority.policies.opinions import OPINIONS, Opinion
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.ports import Case

RuleFunction = Callable[[Case], Opinion | None]
"""A rule without a name; ``rule`` adds one."""


class Rule(Protocol):
    """A named pure function of a case."""

    @property
    def name(self) -> str:
        """The rule's name, unique in its policy."""
        ...

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the opinion on a case, or None; an exception rejects."""
        ...


@dataclass(frozen=True, slots=True)
class PythonRule:
    """A Python function as a rule; callable like the function.

    Args:
        name: the rule's name.
        function: the function.
    """

    name: str
    function: RuleFunction

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the function's opinion."""
        return self.function(case)

    @property
    def __wrapped__(self) -> RuleFunction:
        return self.function

    @property
    def description(self) -> str:
        """The first line of the function's documentation."""
        return (inspect.getdoc(self.function) or "").partition("\n")[0]


@overload
def rule(given: RuleFunction, /) -> PythonRule:  # noqa: D418 - each form is documented
    """Make a function a rule that is named after it."""


@overload
def rule(given: str, /) -> Callable[[RuleFunction], PythonRule]:  # noqa: D418
    """Make a function a rule of this name."""


def rule(given: RuleFunction | str, /) -> PythonRule | Callable[[RuleFunction], PythonRule]:
    """Make a function a rule: ``@rule``, or ``@rule("name")`` with another name.

    Raises:
        RefusedError: ``INVALID_RULE`` for an empty name or one with spaces, and for an object that cannot be called
            with a case or is a coroutine function or generator.
    """
    if isinstance(given, str):
        return lambda function: _named(given, function)
    return _named(getattr(given, "__name__", ""), given)


def ask(asked: Rule, case: Case) -> Opinion | None:
    """Return a rule's opinion.

    Raises:
        RefusedError: ``INVALID_OPINION`` where the result is not an opinion or None.
    """
    opinion = asked(case)
    if opinion is None or type(opinion) in OPINIONS:
        return opinion
    raise RefusedError(ErrorCode.INVALID_OPINION, nonsense(asked.name, opinion))


def nonsense(name: str, answer: object) -> str:
    """Return the error text for a result that is not an opinion."""
    return f"{name} returned {type(answer).__name__}; a rule returns Approve, Reject, Narrow, Escalate or None"


def check_rule(candidate: Any) -> Rule:
    """Return an object that is a rule.

    Raises:
        RefusedError: ``INVALID_RULE`` for any other object.
    """
    name = getattr(candidate, "name", None)
    if not callable(candidate) or isinstance(candidate, type) or name is None:
        raise _invalid(f"{_shown(candidate)} is not a rule; decorate the function with @rule.")
    if not is_name(name):
        raise _invalid(f"{name!r:.80} cannot name a rule: take up to {MAX_NAME} letters, digits and _ . : / -.")
    function = candidate.function if isinstance(candidate, PythonRule) else candidate
    _check_signature(name, function)
    rule_: Rule = candidate
    return rule_


def _named(name: str, function: RuleFunction) -> PythonRule:
    if not callable(function):
        raise _invalid(f"{_shown(function)} cannot be called; decorate a function of a case with @rule.")
    named = PythonRule(name, function)
    check_rule(named)
    return named


def _check_signature(name: str, function: Callable[..., Any]) -> None:
    called = function if inspect.isroutine(function) else getattr(type(function), "__call__", None)  # noqa: B004
    for is_later in (
        inspect.iscoroutinefunction,
        inspect.isasyncgenfunction,
        inspect.isgeneratorfunction,
    ):
        if is_later(called):
            raise _invalid(f"The rule {name!r} must be a plain function, neither async nor with yield.")
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        raise _invalid(f"The rule {name!r} must take one argument, the case.") from None
    except ValueError:
        raise _invalid(f"The rule {name!r} has no Python signature; wrap it in a Python function.") from None


def _shown(value: Any) -> str:
    return f"{getattr(value, '__qualname__', type(value).__name__)!r}"


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_RULE, message)
