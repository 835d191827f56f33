"""Writer epochs in a unit of work: at which place a log may be written, and how it is closed and opened again.

The check is made under the log's lock, so that no event follows ``writer.closed``. Source: docs/production.md, "Writer
epochs".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from world.engine.effect_runner import EffectRecorder
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import REALM_STREAM
from world.events.writer_events import CloseReason, OpenReason, WriterClosed, WriterOpened
from world.pipeline.unit_of_work import UnitOfWork
from world.state.realm_state import RealmState
from world.state.writer_epoch import WriterEpoch, WriterPlace, closed_log

if TYPE_CHECKING:
    from collections.abc import Sequence


P = TypeVar("P", bound="Queued")

__all__ = ["close_writer", "enter_epoch", "open_writer", "refusal"]


class Queued(Protocol):
    """A command that waits for its unit (``world.log.group_commit.Pending``)."""

    @property
    def command(self) -> Any:
        """What to do."""
        ...


def enter_epoch(work: UnitOfWork, place: WriterPlace | None, commands: Sequence[P]) -> list[P]:
    """Check that a unit may write at its place, and begin the next epoch after a failover of the database server.

    Args:
        work: the unit of work; it has emitted nothing yet.
        place: where it writes; None for a file.
        commands: what is going to run.

    Returns:
        The commands that open the log again, which must run before all others.

    Raises:
        RefusedError: ``LOG_FENCED`` where the log was closed to writers and no command opens it; ``WRITER_FENCED``
            where it is written at another place now.
    """
    realm = work.realm
    opening = [pending for pending in commands if getattr(pending.command, "opens_writer", False)]
    if opening or realm.branched is not None:  # a hypothetical copy has a place of its own
        return opening
    if realm.writer.closed is not None:
        raise closed_log(realm.writer.closed)
    if place is None or realm.founded is None:
        return opening
    check_place(realm.writer, place)
    if place.timeline > realm.writer.timeline:
        _emit_opened(work, "failover", place)
    return opening


def check_place(writer: WriterEpoch, place: WriterPlace) -> None:
    """Compare a place with that of the epoch in force.

    Args:
        writer: the epoch.
        place: where a program is about to write, or found the log.

    Raises:
        RefusedError: ``WRITER_FENCED``.
    """
    details = {"epoch": writer.epoch, "timeline": place.timeline, "system": place.system}
    if writer.system not in (None, place.system):
        raise RefusedError(
            ErrorCode.WRITER_FENCED,
            f"Since epoch {writer.epoch} the log is written on the database system {writer.system}, and this is "
            f"{place.system}: a copy. Use the address of that system. If that system is lost for good and this copy "
            "is to go on, open it with `worldctl realm open`.",
            **details,
        )
    if place.timeline < writer.timeline:
        raise RefusedError(
            ErrorCode.WRITER_FENCED,
            f"This server is on timeline {place.timeline}, and since epoch {writer.epoch} the log is written on "
            f"timeline {writer.timeline}: another server was promoted. Write there, and make this one a standby.",
            **details,
        )


def refusal(work: UnitOfWork, command: Any, *, fits: bool) -> RefusedError | None:
    """Return why a command does not run in a unit; None where it does.

    Args:
        work: the unit of work.
        command: the command.
        fits: whether the schema in force is that of the loaded domain.
    """
    closed = work.realm.writer.closed
    if closed is not None and work.realm.branched is None and not getattr(command, "opens_writer", False):
        return closed_log(closed)
    if fits or isinstance(command, EffectRecorder) or getattr(command, "any_schema", False):
        return None
    return RefusedError(
        ErrorCode.SCHEMA_MISMATCH,
        "Another domain was adopted after this realm was opened; open it again with that domain.",
        in_force=work.realm.schema_hash,
        at_hand=work.domain.schema.hash,
    )


def close_writer(work: UnitOfWork, reason: CloseReason, by: str, target: str | None) -> int:
    """Close the log to writers; return the epoch that ended. Other commands of the unit are refused from here on.

    Args:
        work: the unit of work.
        reason: why.
        by: who closes it, for the record.
        target: where the log continues, without a password.
    """
    epoch = work.realm.writer.epoch
    closed = WriterClosed(at=work.at, epoch=epoch, reason=reason, by=by, target=target)
    work.emit(REALM_STREAM, work.of_caller(closed))
    return epoch


def open_writer(work: UnitOfWork, reason: OpenReason, place: WriterPlace | None, by: str) -> int:
    """Begin the next writer epoch at this place; return its number.

    Executions that are under way are continued by the next worker, because those of earlier epochs cannot record
    anything; unless work was abandoned, so that the log is opened where it was.

    Args:
        work: the unit of work.
        reason: why.
        place: where the log is written from now on; None for a file.
        by: who opens it, for the record.

    Raises:
        RefusedError: ``WRITER_OPEN`` where the log is open, and ``reason`` is not ``restore``: a copy whose original
            was lost without being closed.
    """
    if work.realm.writer.closed is None and reason != "restore":
        raise RefusedError(
            ErrorCode.WRITER_OPEN, f"The log is open to writers in epoch {work.realm.writer.epoch}; close it first."
        )
    left = None if reason == "abandon" else _workers(work.realm)
    return _emit_opened(work, reason, place, left=left, by=by)


def _workers(realm: RealmState) -> list[str]:
    return sorted({one.started.worker for one in realm.proposals.values() if one.started is not None})


def _emit_opened(
    work: UnitOfWork,
    reason: OpenReason,
    place: WriterPlace | None,
    *,
    left: list[str] | None = None,
    by: str | None = None,
) -> int:
    epoch = work.realm.writer.epoch + 1
    opened = WriterOpened(
        at=work.at,
        epoch=epoch,
        reason=reason,
        system=None if place is None else place.system,
        timeline=None if place is None else place.timeline,
        left=left or None,
        by=by,
    )
    work.emit(REALM_STREAM, opened if by is None else work.of_caller(opened))
    return epoch
