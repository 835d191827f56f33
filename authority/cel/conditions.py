"""Conditions in CEL: what a rule of a policy file asks of a case.

A condition is true or false, or it fails: a path that does not exist, values of the wrong types, a division by zero,
a number out of range, anything but true or false in the end. What fails refuses (``authority.policies.policy``). A
condition is a function of its case alone: it reads no clock, and loops over a map go in the order of its keys.

The language is evaluated by the package ``common-expression-language``; ``authority.cel.text`` says what of it can
be used. ``authority.policies.policy_file`` alone imports this. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import cel

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
from authority.cel.text import (
    NO_DIVISION,
    ConditionError,
    Name,
    ParsedCondition,
    Read,
    divided,
    read_condition,
    tokens_of,
)
from world.errors import RefusedError
from world.state.ports import Case

Getter = Callable[[Case], Any]

_MISSING: Final = object()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
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


def _scope(case: Case) -> Any:
    scope = case.intent.body.scope_proposal
    return None if scope is None else scope.to_wire()


def _computed(case: Case) -> Any:
    return {name.removeprefix("computed."): value for name, value in case.view.computed.items()}


def _manifest(case: Case) -> Any:
    return [] if case.manifest is None else case.manifest["scope"]


def moment(at_ms: int) -> datetime:
    """Return a time, ms since 1970, as CEL's timestamps are; ``OverflowError`` after the year 9999."""
    return _EPOCH + timedelta(milliseconds=at_ms)


_FIELDS: Final[dict[tuple[str, str], Getter]] = {
    ("actor", "actorId"): lambda case: case.actor.actor_id,
    ("actor", "kind"): lambda case: case.actor.kind,
    ("actor", "name"): lambda case: case.actor.name,
    ("actor", "meta"): lambda case: case.actor.meta or {},
    ("intent", "type"): lambda case: case.intent.body.type,
    ("intent", "input"): lambda case: case.intent.body.input,
    ("intent", "key"): lambda case: case.intent.intent_key,
    ("intent", "scope"): _scope,
    ("base", "data"): lambda case: case.view.data,
    ("base", "computed"): _computed,
    ("base", "world"): lambda case: case.base_world,
    ("base", "branch"): lambda case: case.branch,
}
_VALUES: Final[dict[str, Getter]] = {
    "action": lambda case: case.action,
    "manifest": _manifest,
    "now": lambda case: moment(case.submitted_at),
    "nowMs": lambda case: case.submitted_at,
}


def getter_of(path: tuple[Name, ...]) -> tuple[Getter, tuple[Name, ...]]:
    """Return who gets the beginning of a path from a case, and the names below that."""
    if path[0] in _VALUES:
        return _VALUES[str(path[0])], path[1:]
    if path[:2] == ("base", "computed") and len(path) > 2 and isinstance(path[2], str):
        full = f"computed.{path[2]}"
        return lambda case: case.view.computed.get(full, _MISSING), path[3:]
    return _FIELDS[str(path[0]), str(path[1])], path[2:]


def value_at(path: tuple[Name, ...], case: Case, missing: Any = None) -> Any:
    """Return the value at a path of a case, ``missing`` where there is none."""
    get, below = getter_of(path)
    found = _walk(get(case), below, case)
    return missing if found is _MISSING else found


def _walk(value: Any, below: Sequence[Name], case: Case) -> Any:
    for step in below:
        if type(step) is tuple:
            step = value_at(step, case, _MISSING)
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, _MISSING)
        elif isinstance(value, list) and type(step) is int and 0 <= step < len(value):
            value = value[step]
        else:
            return _MISSING
    return value


def _taker(read: Read) -> Callable[[Case], Any]:
    """Return who takes what one ``Read`` wants from a case; ``_MISSING`` where the condition is to fail."""
    get, below = getter_of(read.path)
    if read.way == "value":
        if len(below) == 1 and isinstance(below[0], str):
            return _only_name(get, below[0])
        return (lambda case: _walk(get(case), below, case)) if below else get
    if read.way == "has":
        return _whether(read.path)
    return _sized(get, below) if read.way == "size" else _looped(get, below)


def _only_name(get: Getter, name: str) -> Getter:
    def take(case: Case) -> Any:
        value = get(case)
        return value.get(name, _MISSING) if isinstance(value, dict) else _MISSING

    return take


def _whether(path: tuple[Name, ...]) -> Getter:
    get, below = getter_of(path)
    if not below:
        return lambda case: get(case) is not _MISSING
    *whole, last = below

    def take(case: Case) -> Any:
        value = _walk(get(case), whole, case) if whole else get(case)
        return last in value if isinstance(value, dict) else _MISSING

    return take


def _sized(get: Getter, below: tuple[Name, ...]) -> Getter:
    def take(case: Case) -> Any:
        value = _walk(get(case), below, case)
        return len(value) if isinstance(value, (str, list, dict)) else _MISSING

    return take


def _looped(get: Getter, below: tuple[Name, ...]) -> Getter:
    def take(case: Case) -> Any:
        value = _walk(get(case), below, case)
        if isinstance(value, dict):
            return sorted(value)
        return value if isinstance(value, list) else _MISSING

    return take


@dataclass(slots=True)
class _ConditionCalls:
    """What a condition calls while it is evaluated for one case; the first failure is kept, never raised."""

    case: Case
    failure: BaseException | None = None

    def count(self, query: Any) -> Any:
        return self._asked(lambda: self.case.history.count(**_conditions("count", query)))

    def sum(self, path: Any, query: Any) -> Any:
        return self._asked(lambda: _number(self.case.history.sum(path, **_conditions("sum", query))))

    def _asked(self, question: Callable[[], Any]) -> Any:
        try:
            return question()
        except RefusedError as refused:
            return self._fail(_failed(refused.message))
        except BaseException as error:  # noqa: BLE001 - the library would swallow it, a time limit included
            return self._fail(error)

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
    """A condition that was read.

    Args:
        text: as the author wrote it.
        reading: what it reads, and what is evaluated.
    """

    text: str
    reading: ParsedCondition
    _program: Any = field(init=False, repr=False, compare=False)
    _takers: tuple[tuple[str, Getter], ...] = field(init=False, repr=False, compare=False)
    _calls: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _cost: Cost = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_program", _compiled(self.reading.text))
        object.__setattr__(self, "_takers", tuple((read.name, _taker(read)) for read in self.reading.reads))
        object.__setattr__(self, "_calls", tuple(sorted(self.reading.calls)))
        object.__setattr__(self, "_cost", cost_of(self.reading.text))

    def __reduce__(self) -> tuple[Any, ...]:
        """What is compiled does not travel between processes; it is read there again."""
        return read_when, (self.text,)

    def holds(self, case: Case) -> bool:
        """Tell whether the condition holds.

        Raises:
            RefusedError: ``CONDITION_FAILED``, with what went wrong.
        """
        values = self._values(case)
        answer = self._evaluated(case, values)
        if answer is True or answer is False:
            return answer
        raise _failed(f"it comes to {_told(answer)}, not to true or false")

    def is_too_large(self, case: Case) -> bool:
        """Tell whether it is not evaluated for a case, because it could take too long."""
        try:
            self._values(case)
        except RefusedError:
            return True
        return False

    def fails_for_good(self, case: Case) -> bool:
        """Tell whether it fails in a function of ours: joined with others, it fails the whole, once it is evaluated."""
        calls = _ConditionCalls(case)
        with suppress(Exception):  # what else fails can be outweighed
            self._run(self._values(case), calls)
        return calls.failure is not None

    def values_read(self, case: Case) -> dict[str, Any]:
        """Return what the condition reads of a case, by the paths as they are written; missing ones are left out."""
        found = {read.shown: value_at(read.path, case, _MISSING) for read in self.reading.reads}
        return {shown: value for shown, value in found.items() if value is not _MISSING}

    def parts(self) -> tuple[str, list[Condition]]:
        """Return ``&&`` or ``||`` and the conditions that it joins; nothing where the condition is one whole."""
        joint, texts = divided(self.text)
        return joint, [read_when(text) for text in texts]

    def _values(self, case: Case) -> dict[str, Any]:
        """Return what it reads; refused where it could take too long with that."""
        values: dict[str, Any] = {}
        heavy: list[str] = []
        for name, take in self._takers:
            value = take(case)
            if value is not _MISSING:
                values[name] = value
                if not is_light(value):
                    heavy.append(name)
        if heavy:
            self._check_cost(values, heavy)
        return values

    def _run(self, values: dict[str, Any], calls: _ConditionCalls | None) -> Any:
        if calls is None:
            return self._program.execute(values)
        return self._program.execute(cel.Context(values, {name: getattr(calls, name[1:]) for name in self._calls}))

    def _evaluated(self, case: Case, values: dict[str, Any]) -> Any:
        calls = _ConditionCalls(case) if self._calls else None
        try:
            answer = self._run(values, calls)
        except Exception as error:  # noqa: BLE001 - the library raises many kinds
            if calls is None or calls.failure is None:
                raise self._told(error) from None
        if calls is not None and calls.failure is not None:
            raise calls.failure
        return answer

    def _told(self, error: Exception) -> RefusedError:
        """Return what the library raised as words that are the same in every run."""
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
        """What it costs at most where all that it reads is small."""
        return self._cost.of({})


def read_when(text: str) -> Condition:
    """Return a condition.

    Raises:
        ConditionError: with what is wrong, where in the text, and what could stand there.
    """
    tokens_of(text)
    try:
        cel.compile(text)
    except BaseException as error:  # a parser's panic, too, is a condition that cannot be read
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ConditionError(_syntax(str(error))) from None
    reading = read_condition(text)
    try:
        condition = Condition(text, reading)
    except ValueError:
        raise ConditionError("it is too large: too many brackets and divisions stand inside of each other") from None
    _check_patterns(text)
    if condition.least_cost > MAX_COST:
        raise ConditionError("it is too large: whatever it reads, its loops and patterns could take too long")
    return condition


def _compiled(text: str) -> Any:
    return cel.compile(text)


def _syntax(message: str) -> str:
    """Return the first complaint of the library with its line and column, without the text that we show anyway."""
    found = re.search(r"<input>:(\d+):(\d+): ([^\n]*)", message)
    if found is None:
        return "it cannot be parsed"
    return f"line {found[1]}, column {found[2]}: {found[3].partition(' expecting ')[0]}"


def _check_patterns(text: str) -> None:
    """Try every regular expression that stands in the text itself."""
    tokens = tokens_of(text)
    for at, token in enumerate(tokens[:-3]):
        if token.text == "matches" and tokens[at + 2].kind == "text" and tokens[at + 3].text == ")":
            if pattern_cost(tokens[at + 2].text) > MAX_PATTERN:
                raise ConditionError(f"{tokens[at + 2].text:.60} is too large a regular expression; repeat less in it")
            try:
                cel.evaluate(f"''.matches({tokens[at + 2].text})")
            except Exception:  # noqa: BLE001 - the library raises many kinds
                raise ConditionError(f"{tokens[at + 2].text} is no regular expression (RE2)") from None


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
            return -((_EPOCH - value) // timedelta(milliseconds=1))  # rounded up: at or after
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
        return _EPOCH + timedelta(seconds=value)
    found = _MOMENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise _failed('timestamp(...) takes a time such as "2026-01-31T12:00:00Z"')
    day, time, fraction, offset = found.groups()
    parts = f"{day}T{time}.{(fraction or '0')[:6].ljust(6, '0')}{offset or '+00:00'}"
    return datetime.fromisoformat(parts).astimezone(UTC)


def _told(answer: Any) -> str:
    names = {str: "a text", int: "a number", float: "a number", list: "a list", dict: "a map", type(None): "null"}
    return names.get(type(answer), "a value")


def _failed(words: str) -> RefusedError:
    return RefusedError("CONDITION_FAILED", words)
