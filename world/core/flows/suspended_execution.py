"""An execution that is kept while an effect is made, and goes on where it stopped.

Running an action again from its start after each of n effects takes n * n / 2 steps. A generator that is kept takes
n (in a declarative flow the nodes are gone through again, but the ids of its effects are not derived again). What
it comes to is the same: an execution is a pure function of snapshot, intent, context and journal. An action
that is not pure would break that, so the kept one is trusted only on its way and never at its end. It is run again
from its start after 1, 2, 4, 8, ... effects, and whenever it has ended. What is sealed is therefore always what the
whole journal gives from the start, as in a recheck. Source: IC-reentry, HC-compute; design section 4.
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
    """One attempt at an action, from effect to effect.

    Args:
        program: the domain.
        snapshot: the base.
        intent: action, input and intentId.
        context: time and seed.

    ``patches_before`` tells how many patches the last computation took over from the one before it.
    """

    __slots__ = (
        "_answered", "_asked", "_context", "_execution", "_intent", "_program", "_snapshot", "patches_before",
    )  # fmt: skip

    def __init__(self, program: Program, snapshot: Snapshot, intent: Invocation, context: ComputeContext) -> None:
        """Begin nothing yet."""
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
        """Tell whether it is an execution of this intent on this base."""
        return intent == self._intent and context == self._context and snapshot == self._snapshot

    def compute(self, journal: Journal) -> Computation:
        """Compute as far as the journal goes; equal to ``world.core.compute`` with the same journal.

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
        """Let go of the generator; its author's cleanup runs here."""
        if self._execution is not None and self._execution.suspended is not None:
            generator, self._execution.suspended = self._execution.suspended.generator, None
            try:
                generator.close()
            except Exception:  # noqa: BLE001 - what an author's cleanup raises changes nothing
                return

    def _is_next(self, journal: Journal) -> bool:
        """Tell whether a journal holds what was answered before, the effect that is waited for, and nothing else."""
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
            intent = replace(self._intent, input=freeze(self._intent.input))
        except RefusedError:
            return compute(self._program, self._snapshot, self._intent, self._context, journal)
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
