"""Events of one governed run: opened, observed, violated, amended, rolled back and closed (KO-4)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from host.observation import Observation, Violation, Watch
from host.observation.audit import exempt
from world.engine.writer import Writer
from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.events.resource_values import ChangedResource, ResourceExistence
from world.events.run_events import (
    RunAmended,
    RunClosed,
    RunCompared,
    RunObserved,
    RunOpened,
    RunRolledBack,
    RunViolated,
)
from world.klis.triple import Triple
from world.pipeline.unit_of_work import UnitOfWork
from worldprotocol.runs.outcomes import Kind, Outcome

__all__ = ["Kind", "Outcome", "RunRecord", "parts"]

FLUSH_S: Final = 1.0
"""Longest delay between an observation and its event, in seconds."""

MAX_UNUSED: Final = 1_000
"""Unused triples that the record lists."""

MAX_IN_EVENT: Final = 1_000
"""Most observations, changes or names in one event."""


class RunRecord:
    """Writes the events of one run; observations are written in batches, violations immediately.

    Args:
        protocol: acts on the log.
        run_id: the run's id.
        watch: the observations.
    """

    def __init__(self, protocol: Writer, run_id: str, watch: Watch) -> None:
        self._protocol = protocol
        self.run_id = run_id
        self._watch = watch
        self._ended = threading.Event()
        self._writing = threading.Lock()
        self._pending: list[Callable[[int], Event]] = []
        self._thread: threading.Thread | None = None

    def opened(
        self,
        verdict: VerdictGiven,
        *,
        kind: Kind,
        held_by: list[str],
        command: list[str],
        existence: list[ResourceExistence] | None,
    ) -> None:
        """Record the beginning; see ``world.events.run_events.RunOpened`` for the members."""
        declared = [one.claim() for one in self._watch.declaration.triples]

        def event(at: int) -> RunOpened:
            return RunOpened(
                at=at,
                run_id=self.run_id,
                agent_id=verdict.agent_id,
                session_id=verdict.session_id,
                mode="strict" if self._watch.is_strict else "permissive",
                declared=declared,
                verdict_id=verdict.verdict_id,
                lease_ids=[lease.lease_id for lease in verdict.leases],
                worker=self._protocol.worker,
                kind=kind,
                held_by=held_by,
                command=command,
                existence=existence,
            )

        self._write(event)
        with exempt():
            self._thread = threading.Thread(target=self._keep_writing, name="worldprotocol-record", daemon=True)
            self._thread.start()

    def amended(self, verdict: VerdictGiven) -> None:
        """Record that the scope was widened."""
        lease = verdict.leases[0]
        self._write(
            lambda at: RunAmended(
                at=at,
                run_id=self.run_id,
                predicate=lease.predicate,
                resource=lease.resource,
                verdict_id=verdict.verdict_id,
                lease_ids=[one.lease_id for one in verdict.leases],
            )
        )

    def rolled_back(self, verdict_id: str, result: Mapping[str, list[str]]) -> None:
        """Record what was restored, in as many events as needed."""
        for some in parts(result):
            self._write(partial(self._rolled_back, verdict_id, some))

    def _rolled_back(self, verdict_id: str, result: Mapping[str, list[str]], at: int) -> RunRolledBack:
        return RunRolledBack(at=at, run_id=self.run_id, verdict_id=verdict_id, **result)

    def compared(self, changes: list[ChangedResource], foreign: list[ChangedResource]) -> None:
        """Record the comparison of contents, in as many events as needed."""
        if changes or foreign:
            for some in parts({"changes": changes, "foreign": foreign}):
                self._write(partial(self._compared, some))

    def _compared(self, found: Mapping[str, list[ChangedResource]], at: int) -> RunCompared:
        return RunCompared(at=at, run_id=self.run_id, **found)

    def closed(
        self,
        outcome: Outcome,
        *,
        reason: str | None,
        exit_code: int | None = None,
        unused: Sequence[Triple] = (),
    ) -> None:
        """Record the end; see ``world.events.run_events.RunClosed`` for the members.

        Args:
            outcome: how the run ended.
            reason: one sentence, or None.
            exit_code: of a command.
            unused: the declared triples that were not used; the first ``MAX_UNUSED`` are listed, the others counted.
        """
        self._ended.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self.flush(final=True)
        listed = [one.claim() for one in unused[:MAX_UNUSED]]
        self._write(
            lambda at: RunClosed(
                at=at,
                run_id=self.run_id,
                outcome=outcome,
                exit_code=exit_code,
                reason=reason,
                unused=listed,
                more_unused=max(0, len(unused) - MAX_UNUSED),
            )
        )

    def flush(self, *, final: bool = False) -> None:
        """Write new observations in order; with ``final`` also the final counts."""
        with self._writing:
            observed, violations = self._watch.drain(final=final)
            for start in range(0, len(observed), MAX_IN_EVENT):
                self._pending.append(partial(self._observed, observed[start : start + MAX_IN_EVENT]))
            self._pending += [partial(self._violation, violation) for violation in violations]
            while self._pending:  # events that cannot be written now are written the next time
                self._write(self._pending[0])
                self._pending.pop(0)

    def _observed(self, some: Sequence[Observation], at: int) -> RunObserved:
        return RunObserved(at=at, run_id=self.run_id, observed=[one.recorded() for one in some])

    def _violation(self, violation: Violation, at: int) -> RunViolated:
        return RunViolated(at=at, run_id=self.run_id, violation=violation.recorded())

    def _keep_writing(self) -> None:
        while not self._ended.wait(FLUSH_S):
            try:
                self.flush()
            except Exception:  # noqa: BLE001  # the store is temporarily unavailable; the rest is written at the end
                continue

    def _write(self, event: Callable[[int], Event]) -> None:
        stream = f"run:{self.run_id}"

        def command(work: UnitOfWork) -> None:
            recorded_event = event(work.at)
            if (
                isinstance(recorded_event, RunOpened) or self.run_id in work.realm.runs
            ):  # another process may have ended it
                work.emit(stream, recorded_event)

        with exempt():
            self._protocol.run(command)


def parts(lists: Mapping[str, list[Any]]) -> Iterator[dict[str, list[Any]]]:
    """Yield the lists in pieces that fit into an event; at least one, which may be empty."""
    longest = max(map(len, lists.values()), default=0)
    for start in range(0, max(longest, 1), MAX_IN_EVENT):
        yield {name: values[start : start + MAX_IN_EVENT] for name, values in lists.items()}
