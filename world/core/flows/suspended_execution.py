"""Suspended executions that resume after an effect.

Running an action again from its start after each of n effects takes n * n / 2 steps. A suspended generator takes
n (a declarative flow is repeated, but the ids of its effects are cached). The
result is equal: an execution is a pure function of snapshot, intent, context and journal. An impure action
would violate that, so a suspended execution is never trusted for the final result. It is run again
from its start after 1, 2, 4, 8, ... effects, and at its end. What is sealed is therefore always the result of the
whole journal from the start, as in a recheck. Source: IC-reentry, HC-compute; design section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from world.core.compute import Computation, compute, perform, run
from world.core.execution import ComputeContext, EffectAnswer, Execution, Invocation, Program, Suspended
from world.core.python_action import resume_python
from world.errors import RefusedError
from world.model.immutable_json import freeze
from world.model.snapshot import Snapshot

__all__ = ["LiveExecution"]

Journal = Mapping[str, EffectAnswer]


class LiveExecution:
    """One attempt of an action across its effects.

    Args:
        program: the domain.
        snapshot: the base.
        intent: action, input and intentId.
        context: time and seed.

    ``patches_before`` is the number of patches that the last computation shares with the one before it.
    """

    __slots__ = (
        "_answered", "_asked", "_context", "_execution", "_intent", "_program", "_snapshot", "patches_before",
    )  # fmt: skip

    def __init__(self, program: Program, snapshot: Snapshot, intent: Invocation, context: ComputeContext) -> None:
        """Create an attempt without running it."""
        self._program = program
        self._snapshot = snapshot
        self._intent = intent
        self._context = context
        self._execution: Execution | None = None
        self._asked = ""
        self._answered: dict[str, EffectAnswer] = {}
        self.patches_before = 0

    @property
    def waits(self) -> bool:
        """Whether it waits for an effect."""
        return bool(self._asked)

    def is_of(self, snapshot: Snapshot, intent: Invocation, context: ComputeContext) -> bool:
        """Return whether it is an execution of this intent on this base."""
        return intent == self._intent and context == self._context and snapshot == self._snapshot

    def compute(self, journal: Journal) -> Computation:
        """Compute with a journal; the result equals that of ``world.core.compute``.

        Args:
            journal: results of all effects made so far, by requirement id.
        """
        suspended = None if self._execution is None else self._execution.suspended
        if suspended is not None and self._is_next(journal):
            done = self._go_on(suspended, journal)
            if done.status == "pending":
                return done
        return self._begin(journal)

    def close(self) -> None:
        """Close the generator, which runs its cleanup."""
        if self._execution is not None and self._execution.suspended is not None:
            generator, self._execution.suspended = self._execution.suspended.generator, None
            try:
                generator.close()
            except Exception:  # noqa: BLE001 - what an author's cleanup raises changes nothing
                return

    def _is_next(self, journal: Journal) -> bool:
        """Return whether a journal extends the answered effects by the awaited one only."""
        count = len(journal)
        is_checked = count & (count - 1) == 0
        return (
            not is_checked
            and count == len(self._answered) + 1
            and self._asked in journal
            and self._answered.items() <= journal.items()
        )

    def _go_on(self, suspended: Suspended, journal: Journal) -> Computation:
        execution = self._execution
        assert execution is not None
        execution.suspended = None
        self.patches_before = len(execution.patches)
        self._answered[self._asked] = journal[self._asked]
        execution.journal = self._answered
        done = perform(execution, self._snapshot, lambda: resume_python(execution, suspended))
        self._remember(done)
        return done

    def _begin(self, journal: Journal) -> Computation:
        self.close()
        self.patches_before = 0
        try:
            frozen = freeze(self._intent.input)
        except RefusedError:
            return compute(self._program, self._snapshot, self._intent, self._context, journal)
        intent = self._intent if frozen is self._intent.input else replace(self._intent, input=frozen)
        self._answered = dict(journal)
        execution = Execution(self._program, self._snapshot, intent, self._context, self._answered)
        execution.keeps = True
        if self._execution is not None:
            execution.asked_before = self._execution.asked
        self._execution = execution
        done = perform(execution, self._snapshot, lambda: run(execution, self._snapshot, first=not journal))
        self._remember(done)
        return done

    def _remember(self, done: Computation) -> None:
        self._asked = done.requirements[0].id if done.requirements else ""
