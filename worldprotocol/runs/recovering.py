"""Recovery after a crash: runs of vanished processes are ended, and their leased changes are undone (KO-3.3).

Later work is not undone: where another session was granted the same place since, the changes of the vanished run are
kept and reported. During a rollback, leases keep other sessions out.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from host.backups import Restored
from host.confinement.descendants import end_orphans
from host.confinement.private import remove_left
from host.environment import HostEnvironment
from world.engine.writer import Writer
from world.errors import RefusedError
from world.events.run_events import RunClosed, RunOpened, RunRolledBack
from world.pipeline.unit_of_work import UnitOfWork
from world.private_files import open_private
from world.state.realm_view import ReadableRealm
from worldprotocol.api.leases import Leases
from worldprotocol.api.leasing.handle import LOST
from worldprotocol.runs.record import parts
from worldprotocol.runs.undoing import Told, give_back
from worldprotocol.runs.verification import VerificationLog, read_verification

__all__ = ["recover_runs"]

IN_THE_WAY: Final = frozenset({"DIED", "WAIT_TIMED_OUT", "WAIT_CANCELLED"})
"""Error codes of leases that conflict with another session."""

FORGOTTEN_MS: Final = 600_000
"""Age of a run, in ms, from which it is closed because its leases ended."""

_LOGGER = logging.getLogger("worldprotocol")


def recover_runs(protocol: Writer, leases: Leases, premises: HostEnvironment) -> list[VerificationLog]:
    """End the runs of vanished processes; return their records, oldest first.

    A command may outlive its killed supervisor; it is ended before anything is restored.

    Args:
        protocol: acts on the log.
        leases: keep other sessions out during a rollback.
        premises: the workspace.
    """
    for finished in _finished(premises):
        for name in finished.failed:
            why = finished.reasons.get(name, "it could not be restored")
            _LOGGER.warning("The rollback to backup %s is not done: %s: %s", finished.backup_id, name, why)
    done: list[VerificationLog] = []
    if not _open_runs(protocol):
        return done
    with _one_at_a_time(premises):
        for opened in _open_runs(protocol):  # another process may have ended them
            if not protocol.is_gone(opened.worker):
                _close_if_forgotten(protocol, opened)
                continue
            if end_orphans(opened.run_id) is None:
                _LOGGER.warning("Run %s: its processes cannot be ended, so it is left open.", opened.run_id)
                continue
            remove_left(opened.run_id)
            _end(protocol, leases, premises, opened)
            done.append(read_verification(protocol.archive, opened.run_id))
    return done


def _finished(premises: HostEnvironment) -> list[Restored]:
    """Finish interrupted rollbacks; where backups cannot be used, nothing is granted for change either."""
    try:
        return premises.backups.finish_interrupted()
    except RefusedError as refused:
        _LOGGER.warning("%s", refused)
        return []


def _close_if_forgotten(protocol: Writer, opened: RunOpened) -> None:
    """Close a run whose leases ended long ago and whose worker may run on another machine.

    A living run notices within a second that its leases have ended, and ends itself. Its changes are kept, because
    another session may be working there.
    """

    def is_forgotten(realm: ReadableRealm, now: int) -> bool:
        held = any(lease in realm.klis.leases for lease in opened.lease_ids)
        return opened.run_id in realm.runs and not held and now - opened.at > FORGOTTEN_MS

    def command(work: UnitOfWork) -> None:
        if is_forgotten(work.realm, work.at):
            reason = "Its leases ended, and nothing was heard of it since; what it left is as it was."
            event = RunClosed(at=work.at, run_id=opened.run_id, outcome="lost", reason=reason)
            work.emit(f"run:{opened.run_id}", event)

    now = protocol.now_ms()
    if protocol.worker != opened.worker and protocol.archive.peek(lambda realm: is_forgotten(realm, now)):
        protocol.run(command)


def _open_runs(protocol: Writer) -> list[RunOpened]:
    runs: list[RunOpened] = protocol.archive.peek(lambda realm: list(realm.runs.values()))
    return runs


@contextmanager
def _one_at_a_time(premises: HostEnvironment) -> Iterator[None]:
    """Keep other processes from recovering: they could undo the work of a session admitted after the first recovery."""
    premises.workspace.make_private()
    with open_private(premises.workspace.private / "recovering") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end(protocol: Writer, leases: Leases, premises: HostEnvironment, opened: RunOpened) -> None:
    """Undo the changes of a run, record its end, and release its leases."""
    record = read_verification(protocol.archive, opened.run_id)
    amended = list(reversed(record.amendments))
    own_leases = [*opened.lease_ids, *(name for one in amended for name in one.lease_ids)]
    verdicts = [*(one.verdict_id for one in amended), opened.verdict_id]
    rollbacks: list[tuple[str, Told]] = []
    try:
        with _nobody_else(protocol, leases, premises, opened, own_leases, verdicts) as fences:
            for verdict_id in verdicts:
                if _is_saved(premises, verdict_id):
                    own = [*verdicts, *fences]
                    rendered = give_back(premises, protocol.archive, verdict_id, own=own, fresh=True)
                    rollbacks.append((verdict_id, rendered))
            _close(
                protocol, opened, own_leases, rollbacks, "Its process vanished; what it left half done was given back."
            )
    except RefusedError as refused:
        if refused.code not in IN_THE_WAY:
            raise
        rollbacks = [(name, {"failed": [f"nothing was given back: {refused.message}"]}) for name in verdicts]
        _close(protocol, opened, own_leases, rollbacks, "Its process vanished, and others are at work there by now.")


@contextmanager
def _nobody_else(
    protocol: Writer,
    leases: Leases,
    premises: HostEnvironment,
    opened: RunOpened,
    own_leases: Sequence[str],
    verdicts: Sequence[str],
) -> Iterator[list[str]]:
    """Keep other sessions out of what a run had leased: by its own leases, or, where they have ended, by new ones.

    Yields:
        The verdicts of the new leases.

    Raises:
        RefusedError: one of ``IN_THE_WAY``, where another session holds leases.
    """
    try:
        protocol.leasing.heartbeat(own_leases, agent_id=opened.agent_id, session_id=opened.session_id)
    except RefusedError as refused:
        if refused.code not in LOST:
            raise
    else:
        yield []
        return
    saved = [name for name in verdicts if _is_saved(premises, name)]
    places = dict.fromkeys(text for name in saved for text in premises.backups.get(name).resources)
    if not places:
        yield []
        return
    session = f"recovery:{opened.run_id}"
    with leases.acquire(
        agent=opened.agent_id, session=session, resources=list(places), timeout=0, run_id=opened.run_id
    ) as held:
        yield [held.verdict.verdict_id]


def _is_saved(premises: HostEnvironment, verdict_id: str) -> bool:
    try:
        premises.backups.get(verdict_id)
    except RefusedError as refused:
        if refused.code != "NO_SUCH_BACKUP":
            raise
        return False
    return True


def _close(
    protocol: Writer,
    opened: RunOpened,
    own_leases: Sequence[str],
    rollbacks: Sequence[tuple[str, Told]],
    reason: str,
) -> None:
    stream = f"run:{opened.run_id}"

    def command(work: UnitOfWork) -> None:
        if opened.run_id not in work.realm.runs:
            return
        for verdict_id, rendered in rollbacks:
            for some in parts(rendered):
                work.emit(stream, RunRolledBack(at=work.at, run_id=opened.run_id, verdict_id=verdict_id, **some))
        work.emit(stream, RunClosed(at=work.at, run_id=opened.run_id, outcome="interrupted", reason=reason))
        left = [name for name in own_leases if name in work.realm.klis.leases]
        if left:
            work.desk().release(left, work.klis_now, agent_id=opened.agent_id, session_id=opened.session_id)

    protocol.run(command)
