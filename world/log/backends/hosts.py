"""Hosts of a replicated database server: what each reports, and which of them a writer may use.

A standby that is promoted begins a new timeline (PostgreSQL, "Timelines"); the server that was primary before stays on
the old one when it returns. Of several hosts the one with the newest timeline is therefore the primary, and a primary
with an older timeline than another host is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.log.values import ServerPlace
from world.model.record import WireForm

__all__ = ["DatabaseHost", "Standby", "check_not_older", "check_replication", "choose_primary", "choose_reader"]

_NOT_WAITING: Final = ("off", "local")
"""Values of ``synchronous_commit`` under which a commit does not wait for standbys."""


@dataclass(frozen=True, slots=True)
class Standby:
    """A standby that is connected to a primary.

    Args:
        name: its ``application_name``.
        sync_state: ``sync``, ``quorum``, ``potential`` or ``async``; None where the role may not see it.
        lag: bytes of the primary's log that it has not stored yet; None where the role may not see them.
    """

    name: str
    sync_state: str | None
    lag: int | None


@dataclass(frozen=True, slots=True)
class DatabaseHost(WireForm):
    """One host of an address, as it was when it was asked.

    Args:
        name: host and port.
        error: why it could not be asked; None for a host that answered. The rest is then without meaning.
        is_primary: whether it accepts writes; otherwise it is a standby.
        system: system identifier of the database cluster.
        timeline: newest timeline that it has, as far as the role may see it.
        position: bytes of the write-ahead log that it has, from its beginning.
        synchronous_names: its setting ``synchronous_standby_names``.
        synchronous_commit: the setting of this name in the connection.
        standbys: those that are connected to it, without base backups; empty on a standby.
        sees_all: whether the role may see timelines and positions of standbys (``pg_monitor``).
    """

    name: str
    error: str | None = None
    is_primary: bool = False
    system: str = ""
    timeline: int = 0
    position: int = 0
    synchronous_names: str = ""
    synchronous_commit: str = "on"
    standbys: tuple[Standby, ...] = ()
    sees_all: bool = False
    WIRE: ClassVar = "host=name error? *answer?"

    @property
    def answer(self) -> dict[str, Any] | None:
        """What it answered, as JSON."""
        if self.error is not None:
            return None
        return {"role": self.role, "timeline": self.timeline, "position": self.position}

    @property
    def role(self) -> str:
        """``primary`` or ``standby``."""
        return "primary" if self.is_primary else "standby"

    @property
    def place(self) -> ServerPlace | None:
        """The place at which this primary writes; None for a standby, and where the server does not say."""
        return ServerPlace(self.system, self.timeline) if self.is_primary and self.system else None

    @property
    def waits_for_standbys(self) -> bool:
        """Whether a commit is acknowledged only when standbys have stored it."""
        return bool(self.synchronous_names.strip()) and self.synchronous_commit not in _NOT_WAITING


def choose_primary(hosts: Sequence[DatabaseHost], where: str) -> DatabaseHost:
    """Return the primary with the newest timeline among all hosts of an address.

    Args:
        hosts: at least one, each asked just now.
        where: the address for people.

    Raises:
        RefusedError: ``WRITER_FENCED`` when the only primary has an older timeline than another host, when two have the
            newest one, or when the hosts belong to several clusters.
        WorldProtocolError: ``LOG_UNAVAILABLE`` without a primary that answers.
    """
    reached = _reached(hosts, where)
    primaries = [one for one in reached if one.is_primary]
    if not primaries:
        raise _unavailable(hosts, where, "no primary answers. Promote the standby with the newest position")
    newest = max(reached, key=lambda one: (one.timeline, one.is_primary))
    candidates = [one for one in primaries if one.timeline == newest.timeline]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = " and ".join(one.name for one in candidates)
        reason = f"{names} are both primary on timeline {newest.timeline}: stop the one that was promoted by mistake"
    else:
        old = max(primaries, key=lambda one: one.timeline)
        reason = (
            f"{old.name} is primary on timeline {old.timeline}, and {newest.name} ({newest.role}) has timeline "
            f"{newest.timeline}: {old.name} was primary before a failover. Stop it and make it a standby"
        )
    raise _fenced(where, reason, hosts)


def choose_reader(hosts: Sequence[DatabaseHost], where: str) -> DatabaseHost:
    """Return the host to read from: a primary before a standby, of these the one that has most.

    Raises:
        RefusedError: ``WRITER_FENCED`` when the hosts belong to several clusters.
        WorldProtocolError: ``LOG_UNAVAILABLE`` when no host answers.
    """
    return max(_reached(hosts, where), key=lambda one: (one.timeline, one.is_primary, one.position))


def check_not_older(host: DatabaseHost, seen: DatabaseHost | None, where: str) -> None:
    """Refuse a host of the same cluster whose timeline is older than one that was used before.

    Args:
        host: to be used now.
        seen: with the newest timeline used so far, if any.
        where: the address for people.

    Raises:
        RefusedError: ``WRITER_FENCED``.
    """
    is_known = (
        host.is_primary or host.sees_all
    )  # the timeline of a standby may be newer than a role without rights sees
    if seen is not None and is_known and host.system == seen.system and host.timeline < seen.timeline:
        reason = (
            f"it leads to {host.name} on timeline {host.timeline}, and this process has used timeline {seen.timeline} "
            f"({seen.name}): {host.name} was primary before a failover. Stop it and make it a standby"
        )
        raise _fenced(where, reason, (host,))


def check_replication(host: DatabaseHost, *, hosts: int, is_accepted: bool, where: str) -> None:
    """Refuse a primary with standbys whose commits do not wait for them, unless the operator accepts that.

    Args:
        host: the primary.
        hosts: how many hosts the address names; several mean that there are standbys, connected or not.
        is_accepted: whether the address says ``standbys=asynchronous``.
        where: the address for people.

    Raises:
        RefusedError: ``REPLICATION_ASYNCHRONOUS``.
    """
    is_replicated = hosts > 1 or bool(host.standbys)
    if is_accepted or host.waits_for_standbys or not is_replicated:
        return
    names = host.synchronous_names.strip()
    if not names:
        cause = "its synchronous_standby_names is empty; set it, such as to 'ANY 1 (a, b)' with the names of standbys"
    else:
        cause = f'its synchronous_commit is {host.synchronous_commit}; open the log with durability = "full"'
    raise RefusedError(
        ErrorCode.REPLICATION_ASYNCHRONOUS,
        f"{where} is not opened for writing: {host.name} acknowledges commits that no standby has, and a failover "
        f"loses them. Reason: {cause}. To accept the loss, add standbys=asynchronous to the options of the address.",
        store=where,
        host=host.name,
        synchronous_standby_names=names,
        synchronous_commit=host.synchronous_commit,
        standbys=[one.name for one in host.standbys],
    )


def _reached(hosts: Sequence[DatabaseHost], where: str) -> list[DatabaseHost]:
    reached = [one for one in hosts if one.error is None]
    if not reached:
        raise _unavailable(hosts, where, "no host answers. Try again when one runs")
    if len({one.system for one in reached}) > 1:
        reason = "its hosts belong to different database clusters: " + ", ".join(
            f"{one.name} to {one.system}" for one in reached
        )
        raise _fenced(where, f"{reason}. Name only those of one cluster", hosts)
    return reached


def _unavailable(hosts: Sequence[DatabaseHost], where: str, reason: str) -> WorldProtocolError:
    found = "; ".join(
        f"{one.name}: {one.error}" if one.error is not None else f"{one.name}: {one.role} on timeline {one.timeline}"
        for one in hosts
    )
    return WorldProtocolError(
        ErrorCode.LOG_UNAVAILABLE,
        f"The log on {where} cannot be reached: {reason}. Hosts: {found}.",
        store=where,
        hosts=[one.to_wire() for one in hosts],
    )


def _fenced(where: str, reason: str, hosts: Sequence[DatabaseHost]) -> RefusedError:
    return RefusedError(
        ErrorCode.WRITER_FENCED,
        f"{where} is not used: {reason}.",
        store=where,
        hosts=[one.to_wire() for one in hosts],
    )
