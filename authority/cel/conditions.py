"""CEL conditions of rules in policy files.

A condition is true or false, or it fails: a path without a value, values of wrong types, a division by zero, a number
out of range, a result other than true or false. A failure rejects (``authority.policies.policy``). A condition depends
only on its case: it reads no clock, and loops over a map follow the order of its keys.

The package ``common-expression-language`` evaluates CEL; ``authority.cel.condition_reader`` defines the accepted
subset. Only ``authority.policies.policy_file`` imports this. Its error texts are recorded in rulings and compared by
rechecks; they must not change. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from authority.cel.case_values import EPOCH, MISSING, Getter, reader_of, value_at
from authority.cel.condition_reader import NO_DIVISION, ConditionReader, ParsedCondition
from authority.cel.conformance import CALLS, ConformantReader
from authority.cel.cost import (
    MAX_COST,
    MAX_PATTERN,
    Cost,
    Size,
    TooLargeError,
    cost_of,
    is_light,
    pattern_cost,
    size_of,
)
from authority.cel.decided_loops import decided
from authority.cel.library import cel
from authority.cel.tokens import ConditionError, divided, tokens_of
from authority.evaluations import EVALUATION
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.ports import Case

_UNDEFINED: Final = re.compile(r"Undefined variable or function: '(_\w+)'")
_MOMENT: Final = re.compile(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(?:[Zz]|([+-]\d\d:\d\d))", re.ASCII)
_QUERY: Final = {
    "actorId": "actor_id",
    "action": "action",
    "intentKey": "intent_key",
    "decision": "decision",
    "outcome": "outcome",
    "since": "since_ms",
}
_CHOICES: Final = {"decision": ("approved", "rejected"), "outcome": ("completed", "failed")}
_COUNTED: Final = ", ".join(_QUERY)


@dataclass(slots=True)
class _ConditionCalls:
    """Functions that a condition calls for one case; stores the first failure."""

    case: Case
    failure: BaseException | None = None

    def count(self, query: Any) -> Any:
        return self._query(lambda: self.case.history.count(**_conditions("count", query)))

    def sum(self, path: Any, query: Any) -> Any:
        return self._query(lambda: _number(self.case.history.sum(path, **_conditions("sum", query))))

    def _query(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except RefusedError as refused:
            return self._fail(_failed(refused.message))
        except BaseException as error:  # noqa: BLE001 - the library would swallow it, a time limit included
            return self._fail(error)

    def function(self, name: str) -> Callable[..., Any]:
        """Return the function of a name in the rewritten text."""
        call = CALLS.get(name)
        if call is None:
            found: Callable[..., Any] = getattr(self, name[1:])
            return found
        return lambda *given: self._query(lambda: call(*given))

    def ordered(self, value: Any) -> Any:
        if isinstance(value, list):
            return value
        if isinstance(value, dict):
            return sorted(value, key=lambda key: (type(key).__name__, key))
        return self._fail(_failed("a loop goes through a list or a map"))

    def size(self, value: Any) -> Any:
        if isinstance(value, (str, list, dict)):
            return len(value)
        return self._fail(_failed("only a text, a list or a map has a size"))

    def timestamp(self, value: Any) -> Any:
        try:
            return _timestamp(value)
        except RefusedError as refused:
            return self._fail(refused)
        except (ValueError, OverflowError):
            return self._fail(_failed(f"{value!r:.60} is no time between the years 1 and 9999"))

    def _fail(self, error: BaseException) -> None:
        self.failure = self.failure or error


@dataclass(frozen=True, slots=True)
class Condition:
    """A compiled condition.

    Args:
        text: the text of the author.
        reading: its reads and the rewritten text.
        evaluation: 2, or 1 for the answers of the library, which policies that were adopted earlier have.
    """

    text: str
    reading: ParsedCondition
    evaluation: int = EVALUATION
    _program: Any = field(init=False, repr=False, compare=False)
    _takers: tuple[tuple[str, Getter], ...] = field(init=False, repr=False, compare=False)
    _calls: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _cost: Cost = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_program", _compiled(self.reading.text))
        object.__setattr__(self, "_takers", tuple((read.name, reader_of(read)) for read in self.reading.reads))
        object.__setattr__(self, "_calls", tuple(sorted(self.reading.calls)))
        object.__setattr__(self, "_cost", cost_of(self.reading.text))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the text; the other process compiles it again."""
        return read_when, (self.text, self.evaluation)

    def holds(self, case: Case) -> bool:
        """Return whether the condition is true for a case.

        Raises:
            RefusedError: ``CONDITION_FAILED`` with the cause.
        """
        answer = self.value(case)
        if answer is True or answer is False:
            return answer
        raise _failed(f"it comes to {_type_name(answer)}, not to true or false")

    def value(self, case: Case) -> Any:
        """Return the value of the expression for a case.

        Raises:
            RefusedError: ``CONDITION_FAILED`` with the cause.
        """
        return self._evaluated(case, self._values(case))

    def is_too_large(self, case: Case) -> bool:
        """Return whether a case exceeds the cost limit or a read fails."""
        try:
            self._values(case)
        except RefusedError:
            return True
        return False

    def fails_for_good(self, case: Case) -> bool:
        """Return whether a function of the engine fails, which is never masked."""
        calls = _ConditionCalls(case)
        with suppress(Exception):  # other failures can be masked by || and &&
            self._run(self._values(case), calls)
        return calls.failure is not None

    def values_read(self, case: Case) -> dict[str, Any]:
        """Return the values that the condition reads, by path; missing ones are left out."""
        values = {read.shown: value_at(read.path, case, MISSING) for read in self.reading.reads}
        return {shown: value for shown, value in values.items() if value is not MISSING}

    def parts(self) -> tuple[str, list[Condition]]:
        """Return ``&&`` or ``||`` and its operands; empty for a single condition."""
        joint, texts = divided(self.text)
        return joint, [read_when(text, self.evaluation) for text in texts]

    def _values(self, case: Case) -> dict[str, Any]:
        """Return the values that it reads; raises where they exceed the cost limit."""
        values: dict[str, Any] = {}
        heavy: list[str] = []
        for name, take in self._takers:
            value = take(case)
            if value is not MISSING:
                values[name] = value
                if not is_light(value):
                    heavy.append(name)
        if heavy:
            self._check_cost(values, heavy)
        return values

    def _run(self, values: dict[str, Any], calls: _ConditionCalls | None) -> Any:
        if calls is None:
            return self._program.execute(values)
        return self._program.execute(cel.Context(values, {name: calls.function(name) for name in self._calls}))

    def _evaluated(self, case: Case, values: dict[str, Any]) -> Any:
        calls = _ConditionCalls(case) if self._calls else None
        try:
            answer = self._run(values, calls)
        except Exception as error:  # noqa: BLE001 - the library raises many kinds
            if calls is None or calls.failure is None:
                calls = _ConditionCalls(case)
                answer = self._decided(values, calls, error)
        if calls is not None and calls.failure is not None:
            raise calls.failure
        return answer

    def _decided(self, values: dict[str, Any], calls: _ConditionCalls, error: Exception) -> Any:
        """Return the value of a condition whose loops another item decides than the one that failed.

        Raises:
            RefusedError: ``CONDITION_FAILED`` with the cause, where it fails all the same.
        """
        if self.evaluation > 1 and self.reading.loops:
            with suppress(Exception):
                return decided(self.text, values, calls.function)
        if calls.failure is None:
            raise self._failure(error) from None
        return None

    def _failure(self, error: Exception) -> RefusedError:
        """Return an error of the library with a text that is equal in every run."""
        if isinstance(error, ZeroDivisionError):
            return _failed("it divides by zero")
        if isinstance(error, OverflowError):
            return _failed("a number becomes too large")
        if isinstance(error, IndexError):
            return _failed("a list has no item at a place that it reads")
        if isinstance(error, KeyError):
            return _failed(f"there is no {error.args[0] if error.args else '?'!r} in a value that it reads")
        undefined = _UNDEFINED.search(str(error))
        if undefined is not None:
            return self._undefined(undefined[1])
        if isinstance(error, TypeError):
            return _failed("values of different types do not go together; double(x), int(x), string(x) turn them")
        return _failed("a function does not take the values that it is given")

    def _undefined(self, name: str) -> RefusedError:
        if name == NO_DIVISION:
            return _failed("it divides by zero")
        for read in self.reading.reads:
            if read.name == name:
                wanted = {"size": " that has a size", "loop": " that a loop could go through"}.get(read.way, "")
                return _failed(f"there is no {read.shown}{wanted}")
        return _failed("a function does not take the values that it is given")

    def _check_cost(self, values: Mapping[str, Any], heavy: Sequence[str]) -> None:
        sizes: dict[str, Size] = {}
        try:
            for name in heavy:
                sizes[name] = size_of(values[name])
        except TooLargeError:
            sizes[name] = ()
        if () not in sizes.values() and self._cost.of(sizes) <= MAX_COST:
            return
        largest = max(sizes, key=lambda name: sizes[name][0].weight if sizes[name] else MAX_COST)
        shown = next(read.shown for read in self.reading.reads if read.name == largest)
        raise _failed(f"it could take too long, because {shown} is too large; read less of it, or loop over less")

    @property
    def least_cost(self) -> int:
        """The cost bound for small values."""
        return self._cost.of({})


def read_when(text: str, evaluation: int = EVALUATION) -> Condition:
    """Read and compile a condition.

    Args:
        text: the condition.
        evaluation: see ``Condition``.

    Raises:
        ConditionError: with the fault, its place in the text, and what is allowed.
    """
    tokens_of(text)
    try:
        cel.compile(text)
    except BaseException as error:  # a panic of the parser is a fault of the condition, too
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConditionError(_syntax(str(error))) from None
    reading = (ConformantReader if evaluation > 1 else ConditionReader)(text).read()
    try:
        condition = Condition(text, reading, evaluation)
    except ValueError:
        raise ConditionError("it is too large: too many nested brackets and divisions") from None
    _check_patterns(text)
    if condition.least_cost > MAX_COST:
        raise ConditionError("it is too large: whatever it reads, its loops and patterns could take too long")
    return condition


def _compiled(text: str) -> Any:
    return cel.compile(text)


def _syntax(message: str) -> str:
    """Return the first syntax error of the library with line and column."""
    found = re.search(r"<input>:(\d+):(\d+): ([^\n]*)", message)
    if found is None:
        return "it cannot be parsed"
    return f"line {found[1]}, column {found[2]}: {found[3].partition(' expecting ')[0]}"


def _check_patterns(text: str) -> None:
    """Compile every regular expression literal of a text."""
    tokens = tokens_of(text)
    for at, token in enumerate(tokens[:-3]):
        if token.text == "matches" and tokens[at + 2].kind == "text" and tokens[at + 3].text == ")":
            if pattern_cost(tokens[at + 2].text) > MAX_PATTERN:
                raise ConditionError(f"{tokens[at + 2].text:.60} is too large a regular expression; repeat less in it")
            try:
                cel.evaluate(f"''.matches({tokens[at + 2].text})")
            except Exception:  # noqa: BLE001 - the library raises many kinds
                raise ConditionError(f"{tokens[at + 2].text} is not a regular expression (RE2)") from None


def _number(value: int | float) -> int | float:
    if type(value) is int and not -(2**63) <= value < 2**63:
        raise _failed("a number becomes too large")
    return value


def _conditions(name: str, query: Any) -> dict[str, Any]:
    if not isinstance(query, dict) or not query.keys() <= _QUERY.keys():
        raise _failed(f"history.{name} takes a map with some of {_COUNTED}")
    return {_QUERY[name]: _condition(name, value) for name, value in query.items()}


def _condition(name: str, value: Any) -> Any:
    if name == "since":
        if isinstance(value, datetime):
            return -((EPOCH - value) // timedelta(milliseconds=1))  # rounded up: at or after
        if type(value) is int:
            return value
        raise _failed("since is a time, or ms since 1970")
    if not isinstance(value, str) or value not in _CHOICES.get(name, (value,)):
        raise _failed(f"{name} is {' or '.join(_CHOICES.get(name, ('a text',)))}")
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, datetime):
        return value
    if type(value) is int:
        return EPOCH + timedelta(seconds=value)
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _failed('timestamp(...) takes a time such as "2026-01-31T12:00:00Z"')
    day, time, fraction, offset = found.groups()
    parts = f"{day}T{time}.{(fraction or '0')[:6].ljust(6, '0')}{offset or '+00:00'}"
    return datetime.fromisoformat(parts).astimezone(UTC)


def _type_name(answer: Any) -> str:
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "a map", type(None): "null"}
    return names.get(type(answer), "a value")


def _failed(words: str) -> RefusedError:
    return RefusedError(ErrorCode.CONDITION_FAILED, words)
