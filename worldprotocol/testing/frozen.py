"""Deterministic clock, ids, worker and effects of a test.

A realm that is made of these parts writes the same log, byte by byte, whenever the same things are done to it.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from host import EffectRegistry, find_effects
from host.effect_call import EffectCallInfo
from host.effect_registry import WholeRegistry
from host.effects import EffectFailure, EffectHandler, EffectResult
from host.loading import load_handlers
from world.clock import ManualClock, SequentialIds
from world.events.base import Event
from world.events.execution_events import EffectFulfilled, EffectRequested, EffectRetried
from world.model.canonical_json import canonical_text
from world.model.immutable_json import freeze, thaw
from world.model.snapshot import Requirement

START_MS: Final = 1_767_225_600_000
"""When a test's realm is founded: the beginning of 2026, in ms since 1970."""

NO_RESULT: Final = "NO_RECORDED_RESULT"
"""Code of the error value that an action gets where no result of its effect was recorded."""

Key = tuple[str, str]
"""An effect: its name, and the canonical text of its parameters."""


class OneWorker:
    """Worker registry of a test: a fixed name, and no other workers."""

    me = "test"

    def close(self) -> None:
        """There is nothing to leave."""

    def is_gone(self, worker: str) -> bool:
        """Return whether it is another worker, which counts as ended."""
        return worker != self.me


@dataclass(frozen=True, slots=True)
class Result:
    """What an effect gives back in a test; see ``result``.

    Args:
        effect: its name.
        answer: what a handler answered.
        params: its parameters; None for any.
    """

    effect: str
    answer: EffectResult | EffectFailure
    params: Any = None


def result(
    effect: str, params: Mapping[str, Any] | None = None, *, gives: Any = None, fails: EffectFailure | str | None = None
) -> Result:
    """Return what an effect is to give back in a test.

    Args:
        effect: its name.
        params: its parameters; None for any.
        gives: its value, or a ``EffectResult``.
        fails: the ``EffectFailure`` that it is to be instead, or its code.
    """
    if fails is not None:
        failed = fails if isinstance(fails, EffectFailure) else EffectFailure(fails, f"{effect} fails in this test.")
        return Result(effect, failed, params)
    return Result(effect, gives if isinstance(gives, EffectResult) else EffectResult(gives), params)


def results_of(events: Iterable[tuple[int, Event]]) -> Iterator[Result]:
    """Yield what the effects of a log gave back, failures that were retried included, in order."""
    asked: dict[tuple[str, str], Requirement] = {}
    for _, event in events:
        if isinstance(event, EffectRequested):
            asked[event.proposal_id, event.requirement.id] = event.requirement
        elif isinstance(event, (EffectFulfilled, EffectRetried)):
            requirement = asked[event.proposal_id, event.requirement_id]
            yield Result(requirement.type, _answer(event), requirement.params)


def _answer(event: EffectFulfilled | EffectRetried) -> EffectResult | EffectFailure:
    if isinstance(event, EffectRetried):
        error = event.error
        return EffectFailure(error.code, error.message, error.context, retryable=True)
    rendered = event.result
    if rendered.error is not None:
        return EffectFailure(rendered.error.code, rendered.error.message, rendered.error.context)
    return EffectResult(rendered.value, rendered.patches)


@dataclass(slots=True)
class Results:
    """Recorded results of effects, returned in the order of the record.

    Args:
        recorded: the results; those without parameters answer whatever no other answers, each as often as it is asked.
        may_perform: whether an effect without a result is made.
        missing: the effects that had none.
    """

    recorded: dataclasses.InitVar[Iterable[Result]]
    may_perform: bool = False
    missing: list[Key] = field(default_factory=list)
    _waiting: dict[Key, deque[EffectResult | EffectFailure]] = field(init=False)
    _for_any: dict[str, EffectResult | EffectFailure] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self, recorded: Iterable[Result]) -> None:
        """Take in what was recorded."""
        self._waiting = defaultdict(deque)
        for one in recorded:
            if one.params is None:
                self._for_any[one.effect] = one.answer
            else:
                self._waiting[_key(one.effect, one.params)].append(one.answer)

    def handlers(self, effects: Iterable[Any], folder: Path) -> WholeRegistry:
        """Return handlers that give these results, in place of all that are available.

        Args:
            effects: the realm's own handlers, or references to them.
            folder: where relative references start.
        """
        registry = EffectRegistry(builtin=find_effects())
        for one in effects:
            for given in load_handlers(one, base=folder) if isinstance(one, str) else [one]:
                registry.add(given)
        return FrozenRegistry(registry, self)

    def knows(self, effect: str) -> bool:
        """Return whether there was a result of such an effect."""
        return effect in self._for_any or any(name == effect for name, _ in self._waiting)

    def take(self, effect: str, params: Any) -> EffectResult | EffectFailure | None:
        """Return the next result of an effect; None where there is none, which is noted."""
        key = _key(effect, params)
        with self._lock:
            if self._waiting.get(key):
                return self._waiting[key].popleft()
            if effect in self._for_any:
                return self._for_any[effect]
            if not self.may_perform:
                self.missing.append(key)
            return None


@dataclass(frozen=True, slots=True)
class Frozen(EffectHandler):
    """A handler that gives recorded results; what it promises and touches is as the real one says.

    Args:
        results: where it takes them from.
    """

    results: Results = field(kw_only=True)

    @classmethod
    def of(cls, real: EffectHandler, results: Results) -> Frozen:
        """Return a replacement of a handler; an external effect is performed by this process too."""
        rendered = {one.name: getattr(real, one.name) for one in dataclasses.fields(EffectHandler)}
        rendered["terms"] = dataclasses.replace(real.terms, external=False)
        return cls(**rendered, results=results)

    def __call__(self, params: Mapping[str, Any], call: EffectCallInfo) -> Any:
        """Return the recorded result; make the effect, or fail, where there is none."""
        known = self.results.take(self.type, params)
        if known is not None:
            return known
        if self.results.may_perform:
            return EffectHandler.__call__(self, params, call)
        return EffectFailure(NO_RESULT, f"No result of {self.type} is recorded.")


class FrozenRegistry(WholeRegistry):
    """Returns recorded results for each requested effect, also without a handler."""

    def __init__(self, real: EffectRegistry, results: Results) -> None:
        """Replace a realm's own handlers."""
        super().__init__(Frozen.of(given, results) for given in real)
        self._results = results

    def find(self, effect_type: str) -> EffectHandler | None:
        """Return the handler of a type of effect; None only where effects are made and this one has no handler."""
        found = super().find(effect_type)
        if found is not None or (self._results.may_perform and not self._results.knows(effect_type)):
            return found
        return Frozen.of(EffectHandler(effect_type, _nobody, self.terms(effect_type)), self._results)


def frozen_parts(seed: str, clock: ManualClock, effects: WholeRegistry) -> dict[str, Any]:
    """Return the parts of a realm that a test freezes.

    Args:
        seed: what ids are made of.
        clock: does not move unless it is advanced.
        effects: the effect handlers.
    """
    return {"clock": clock, "ids": SequentialIds(seed), "workers": OneWorker(), "effects": effects}


def _key(effect: str, params: Any) -> Key:
    return effect, canonical_text(thaw(freeze(params)))


def _nobody(params: Any, call: EffectCallInfo) -> Any:
    raise AssertionError(f"{call.effect_type} has no handler")
