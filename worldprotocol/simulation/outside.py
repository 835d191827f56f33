"""Simulated environment: counted effects and their injected faults.

Handlers run in the caller's thread and in virtual time. Faults are set in advance by ``weather``: a
handler may fail, take too long, or its process may die before or after it did anything.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from host.effect_call import EffectCallInfo
from host.effect_registry import EffectRegistry
from host.effects import EffectFailure, EffectHandler, EffectResult
from host.worker import Finished, GivenUp, NotStarted, TimedOut, WorkerThreads
from worldprotocol.simulation.storage import KilledError

__all__ = ["WEATHER", "SimulatedEnvironment"]

WEATHER: Final = (
    "fair",
    "fails",
    "refuses",
    "breaks_before",
    "breaks_after",
    "hangs",
    "slow",
    "dies_before",
    "dies_after",
)
"""How the making of an effect goes: as it should; it fails, to be tried again or for good; its handler raises before or
after it did it; it does not end in time, or ends without a result in time; the process dies before or after
it.
"""


class SimulatedEnvironment:
    """The world outside of the engine, with a record of all that was done to it.

    Args:
        handlers: those of the scenario; each is wrapped, so that its deeds are counted.
    """

    def __init__(self, handlers: Iterable[EffectHandler]) -> None:
        """Begin with nothing done."""
        self.weather = "fair"
        self.done: Counter[str] = Counter()
        self.repeated: list[str] = []
        self.values: dict[str, Any] = {}
        self.idempotent: dict[str, bool] = {}
        self.registry = EffectRegistry()
        for handler in handlers:
            self.registry.add(dataclasses.replace(handler, function=self._counted(handler)))
        self.workers = _InTurn(self)

    def _counted(self, handler: EffectHandler) -> Callable[[Any, EffectCallInfo], Any]:
        """Return the handler's function; an idempotent one runs once for each key."""

        def function(params: Any, call: EffectCallInfo) -> Any:
            key = call.idempotency_key
            if self.weather == "fails":
                return EffectFailure("BUSY", "The outside is busy.", retryable=True)
            if self.weather == "refuses":
                return EffectFailure("UNWANTED", "The outside does not want this.")
            idempotent = handler.terms_for(params if isinstance(params, Mapping) else {}).idempotent
            if idempotent and key in self.values:
                return self.values[key]
            answer = handler.function(params, call)
            if not isinstance(answer, EffectFailure):
                self.done[key] += 1
                if self.done[key] > 1:
                    self.repeated.append(key)
                self.idempotent[key] = idempotent
                self.values[key] = answer
            return answer

        return function

    def value_of(self, key: str) -> Any:
        """Return the result of an effect as JSON."""
        answer = self.values[key]
        return answer.value if isinstance(answer, EffectResult) else answer


class _InTurn(WorkerThreads):
    """Runs handlers at once, in the thread that asks."""

    def __init__(self, outside: SimulatedEnvironment) -> None:
        super().__init__()
        self._outside = outside

    def run(
        self,
        name: str,
        work: Callable[[], Any],
        read: Callable[[Any], Any],
        *,
        time_limit_ms: int,
        around: Callable[[], AbstractContextManager[Any]] = nullcontext,
        why_over: Callable[[], tuple[str, str] | None] = lambda: None,
        give_up: Callable[[], None] = lambda: None,
    ) -> Finished | TimedOut | GivenUp | NotStarted:
        """See ``WorkerThreads.run``."""
        weather = self._outside.weather
        if weather == "dies_before":
            raise KilledError("before an effect")
        if weather == "breaks_before":
            return Finished(error=ConnectionError("the outside cannot be reached"))
        if weather == "hangs":
            give_up()
            return TimedOut()
        try:
            with around():
                value = read(work())
        except Exception as error:  # noqa: BLE001 - handed over, as from a thread
            return Finished(error=error)
        if weather == "dies_after":
            raise KilledError("after an effect")
        if weather == "breaks_after":
            return Finished(error=ConnectionError("the answer of the outside was lost"))
        if weather == "slow":
            give_up()
            return TimedOut()
        return Finished(value)
