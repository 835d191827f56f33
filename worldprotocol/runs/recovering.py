"""After a crash: runs whose process vanished are ended, and what they had leased for change is given back (KO-3.3).

Who came after is not undone: where others were granted the same place meanwhile, what the vanished run left there stays
as it is, and is told. While something is given back, leases keep everybody out.
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
from world.engine.protocol import WorldProtocol
from world.errors import RefusedError
from world.events.run_events import RunClosed, RunOpened, RunRolledBack
from world.pipeline.unit_of_work import UnitOfWork
from world.private_files import open_private
from world.state.realm_state import RealmState
from worldprotocol.api.lease_handle import LOST
from worldprotocol.api.leases import Leases
from worldprotocol.runs.record import parts
from worldprotocol.runs.undoing import Told, give_back
from worldprotocol.runs.verification import VerificationLog, read_verification

__all__ = ["recover_runs"]

IN_THE_WAY: Final = frozenset({"DIED", "WAIT_TIMED_OUT", "WAIT_CANCELLED"})
"""Refusals of leases that say that somebody else is there."""

FORGOTTEN_MS: Final = 600_000
"""How old a run must be, in ms, to be closed because its leases ended."""

_LOGGER = logging.getLogger("worldprotocol")


def recover_runs(protocol: WorldProtocol, leases: Leases, premises: HostEnvironment) -> list[VerificationLog]:
    """End the runs whose process vanished; returns their records, oldest first.

    A command outlives a watcher that was killed; it is ended before anything is given back.

    Args:
        protocol: acts on the log.
        leases: keep others out while something is given back.
        premises: the workspace.
    """
    for finished in _finished(premises):
        for name in finished.failed:
            why = finished.reasons.get(name, "it could not be given back")
            _LOGGER.warning("The rollback to backup %s is not done: %s: %s", finished.backup_id, name, why)
    done: list[VerificationLog] = []
    if not _open_runs(protocol):
        return done
    with _one_at_a_time(premises):
        for opened in _open_runs(protocol):  # another process may have ended them meanwhile
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
    """Finish rollbacks that were cut off; where backups cannot be used, nothing is granted for change either."""
    try:
        return premises.backups.finish_interrupted()
    except RefusedError as refused:
        _LOGGER.warning("%s", refused)
        return []


def _close_if_forgotten(protocol: WorldProtocol, opened: RunOpened) -> None:
    """Close a run whose leases ended long ago though its worker is not known to be gone: it may be on another machine.

    One that lives notices within a second that its leases are gone, and ends by itself. What it left is not touched:
    somebody else may be at work there.
    """

    def is_forgotten(realm: RealmState, now: int) -> bool:
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


def _open_runs(protocol: WorldProtocol) -> list[RunOpened]:
    runs: list[RunOpened] = protocol.archive.peek(lambda realm: list(realm.runs.values()))
    return runs


@contextmanager
def _one_at_a_time(premises: HostEnvironment) -> Iterator[None]:
    """Keep other processes from recovering too: they could undo the work of whoever was let in after the first."""
    premises.workspace.make_private()
    with open_private(premises.workspace.private / "recovering") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end(protocol: WorldProtocol, leases: Leases, premises: HostEnvironment, opened: RunOpened) -> None:
    """Give back what a run left, record its end, and let others in."""
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
                    told = give_back(premises, protocol.archive, verdict_id, own=own, fresh=True)
                    rollbacks.append((verdict_id, told))
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
    protocol: WorldProtocol,
    leases: Leases,
    premises: HostEnvironment,
    opened: RunOpened,
    own_leases: Sequence[str],
    verdicts: Sequence[str],
) -> Iterator[list[str]]:
    """Keep everybody out of what a run had leased: by its own leases, or, where they have ended, by new ones.

    Yields:
        The verdicts that were granted for this.

    Raises:
        RefusedError: one of ``IN_THE_WAY``, where somebody is there.
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
    protocol: WorldProtocol,
    opened: RunOpened,
    own_leases: Sequence[str],
    rollbacks: Sequence[tuple[str, Told]],
    reason: str,
) -> None:
    stream = f"run:{opened.run_id}"

    def command(work: UnitOfWork) -> None:
        if opened.run_id not in work.realm.runs:
            return
        for verdict_id, told in rollbacks:
            for some in parts(told):
                work.emit(stream, RunRolledBack(at=work.at, run_id=opened.run_id, verdict_id=verdict_id, **some))
        work.emit(stream, RunClosed(at=work.at, run_id=opened.run_id, outcome="interrupted", reason=reason))
        left = [name for name in own_leases if name in work.realm.klis.leases]
        if left:
            work.desk().release(left, work.klis_now, agent_id=opened.agent_id, session_id=opened.session_id)

    protocol.run(command)
