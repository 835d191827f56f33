"""After a crash: runs whose process vanished are ended, and what they had leased for change is given back (KO-3.3).

Who came after is not undone: where another run was granted the same place meanwhile, its backup is the newer one, and
what the vanished run left there stays as it is, and is told.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from host.premises import Premises
from world.errors import Refused
from world.events import RunClosed, RunOpened, RunRolledBack
from world.klis.resource import Resource, canonical_resource
from world.protocol import WorldProtocol
from world.realm import Realm
from world.work import Work
from worldprotocol.runs.orphans import end_orphans
from worldprotocol.runs.verification import VerificationLog, read_verification

__all__ = ["recover_runs"]

FORGOTTEN_MS: Final = 600_000
"""How old a run must be, in ms, to be closed because its leases ended."""

_LOGGER = logging.getLogger("worldprotocol")


def recover_runs(protocol: WorldProtocol, premises: Premises) -> list[VerificationLog]:
    """End the runs whose process vanished; returns their records, oldest first.

    A command outlives a watcher that was killed; it is ended before anything is given back.

    Args:
        protocol: acts on the log.
        premises: the workspace.
    """
    for finished in premises.backups.finish_interrupted():
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
            _end(protocol, premises, opened)
            done.append(read_verification(protocol.archive, opened.run_id))
    return done


def _close_if_forgotten(protocol: WorldProtocol, opened: RunOpened) -> None:
    """Close a run whose leases ended long ago though its worker is not known to be gone: it may be on another machine.

    One that lives notices within a second that its leases are gone, and ends by itself. What it left is not touched:
    somebody else may be at work there.
    """

    def is_forgotten(realm: Realm, now: int) -> bool:
        held = any(lease in realm.klis.leases for lease in opened.lease_ids)
        return opened.run_id in realm.runs and not held and now - opened.at > FORGOTTEN_MS

    def command(work: Work) -> None:
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
def _one_at_a_time(premises: Premises) -> Iterator[None]:
    """Keep other processes from recovering too: they could undo the work of whoever was let in after the first."""
    folder = premises.workspace.private
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "recovering").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end(protocol: WorldProtocol, premises: Premises, opened: RunOpened) -> None:
    """Give back what a run left, and record its end; whoever else does the same meanwhile is not in the way."""
    record = read_verification(protocol.archive, opened.run_id)
    rollbacks = []
    for verdict_id in (*(one.verdict_id for one in reversed(record.amendments)), opened.verdict_id):
        told = _give_back(premises, verdict_id)
        if told is not None:
            rollbacks.append((verdict_id, told))
    stream = f"run:{opened.run_id}"

    def command(work: Work) -> None:
        if opened.run_id not in work.realm.runs:
            return
        for verdict_id, told in rollbacks:
            event = RunRolledBack(at=work.at, run_id=opened.run_id, verdict_id=verdict_id, **told)
            work.emit(stream, event)
        reason = "Its process vanished; what it left half done was given back."
        work.emit(stream, RunClosed(at=work.at, run_id=opened.run_id, outcome="interrupted", reason=reason))
        work.desk().release_session(opened.agent_id, opened.session_id, work.klis_now)

    protocol.run(command)


def _give_back(premises: Premises, verdict_id: str) -> dict[str, list[str]] | None:
    """Restore one backup where nobody came after; None where there is none."""
    try:
        own = premises.backups.get(verdict_id)
    except Refused as refused:
        return None if refused.code == "NO_SUCH_BACKUP" else {"failed": [refused.message]}
    places = [canonical_resource(text) for text in own.resources]
    later = [
        info
        for info in premises.backups.list()
        if info.at > own.at and info.backup_id != verdict_id and _meet(places, info.resources)
    ]
    if later:
        return {"failed": [f"{text}: others were granted it since, so it was left as it is" for text in own.resources]}
    try:
        told = premises.restore(verdict_id)
    except (Refused, OSError) as error:
        return {"failed": [str(error)]}
    return {name: list(names) for name, names in told.items()}


def _meet(places: Sequence[Resource], others: Sequence[str]) -> bool:
    found = [canonical_resource(text) for text in others]
    return any(one.overlaps(other) for one in places for other in found)
