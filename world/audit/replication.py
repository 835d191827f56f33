"""How the database server of a log is replicated: its hosts, and whether commits wait for standbys."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from world.log.backends.builtin import STANDBYS
from world.log.backends.hosts import DatabaseHost, Standby, choose_reader
from world.log.reading import LogReader

__all__ = ["DatabaseHost", "Replication", "Standby", "replication"]

_COUNT: Final = re.compile(r"\s*(?:(?:ANY|FIRST)\s+)?(?P<count>\d+)\s*\(", re.IGNORECASE)

_COUNTED: Final = ("sync", "quorum")
"""States of the standbys that a commit waits for (``pg_stat_replication.sync_state``)."""


@dataclass(frozen=True, slots=True)
class Replication:
    """The replication of one log's server.

    Args:
        kind: ``single`` without standbys; ``synchronous`` where commits wait for standbys; else ``asynchronous``.
        is_accepted: whether the address accepts asynchronous standbys.
        hosts: all hosts of the address, each asked just now.
        used: the host that a writer or, without a primary, a reader uses.
    """

    kind: Literal["single", "synchronous", "asynchronous"]
    is_accepted: bool
    hosts: tuple[DatabaseHost, ...]
    used: DatabaseHost

    @property
    def needed(self) -> int:
        """How many standbys a commit waits for; 0 where it waits for none."""
        if self.kind != "synchronous":
            return 0
        counted = _COUNT.match(self.used.synchronous_names)
        return int(counted["count"]) if counted else 1

    @property
    def connected(self) -> int | None:
        """How many standbys are connected that a commit may wait for; None where the role may not see it."""
        if not self.used.is_primary or any(one.sync_state is None for one in self.used.standbys):
            return None
        return sum(one.sync_state in _COUNTED for one in self.used.standbys)


def replication(log: LogReader, *, waits: bool) -> Replication | None:
    """Ask all hosts of a log's address; None for a log in a file.

    Args:
        log: open for reading.
        waits: whether writers wait until a commit is durable (``durability = "full"``).

    Raises:
        WorldProtocolError: ``LOG_UNAVAILABLE`` when no host answers.
    """
    hosts = tuple(log.hosts())
    if not hosts:
        return None
    used = choose_reader(hosts, str(log.address))
    url = log.address.url
    is_accepted = url is not None and STANDBYS in url.query
    kind: Literal["single", "synchronous", "asynchronous"]
    if used.waits_for_standbys and waits:
        kind = "synchronous"
    else:
        kind = "asynchronous" if used.standbys or len(hosts) > 1 else "single"
    return Replication(kind, is_accepted, hosts, used)
