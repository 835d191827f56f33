"""Connections to the hosts of a PostgreSQL address, and what each host reports of itself."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, TypeVar

import psycopg
from psycopg import Connection, errors

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.log.backends.hosts import (
    DatabaseHost,
    Standby,
    check_not_older,
    check_replication,
    choose_primary,
    choose_reader,
)
from world.log.store import Row

__all__ = ["FlushingConnection", "PostgresHosts"]

COMPARE_S: Final = 5.0
"""How often a running writer compares the timelines of all hosts, in seconds."""

_NO_ENCODING: Final = "sql_ascii"
"""Encoding, in lower case, of a database that was made in the locale ``C`` without naming one."""

_READ: Final = 1
_READ_WRITE: Final = 3

_T = TypeVar("_T")

_DEFAULTS: Final = {
    "connect_timeout": 3,  # seconds for one host that does not answer
    "keepalives_idle": 10,  # seconds without traffic until a machine that vanished is looked for
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,  # milliseconds for what was sent to a machine that vanished
}
"""Options of connections where several hosts are named; those of the address come first."""

_STATE: Final = """
SELECT s.system_identifier::TEXT, NOT pg_is_in_recovery(),
  CASE WHEN pg_is_in_recovery()
    THEN greatest(c.timeline_id, r.min_recovery_end_timeline, (SELECT received_tli FROM pg_stat_wal_receiver))
    ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::BIT(32)::INTEGER END,
  pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery()
    THEN greatest(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn())
    ELSE pg_current_wal_flush_lsn() END, '0/0')::BIGINT,
  current_setting('synchronous_standby_names'), current_setting('synchronous_commit'),
  pg_has_role('pg_read_all_stats', 'USAGE') AND has_function_privilege('pg_ls_waldir()', 'EXECUTE')
FROM pg_control_system() s, pg_control_checkpoint() c, pg_control_recovery() r"""

_STANDBYS: Final = """
SELECT r.application_name, r.sync_state, pg_wal_lsn_diff(pg_current_wal_flush_lsn(), r.flush_lsn)::BIGINT
FROM pg_stat_replication r
WHERE CASE WHEN r.state IS NULL THEN r.application_name NOT IN ('pg_basebackup', 'pg_receivewal')
    ELSE r.state IN ('catchup', 'streaming') AND r.replay_lsn IS NOT NULL END
  AND NOT EXISTS (SELECT FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')
ORDER BY 1"""
"""Those who replay the log. Base backups and archives receive it without replaying it, logical slots its content."""

_STORED_TIMELINE: Final = (
    "SELECT max(('x' || left(name, 8))::BIT(32)::INTEGER) FROM pg_ls_waldir() WHERE name ~ '^[0-9A-F]{8}(\\.|[0-9A-F])'"
)
"""Newest timeline of the files of a standby; its receiver no longer reports it once its primary is gone."""


class FlushingConnection(Connection[Row]):
    """A connection that continues to send while it waits for an answer, and has the host that it leads to.

    In pipeline mode psycopg hands its last command to libpq, flushes once and then only reads. What did not
    fit into the socket's buffer is never sent, and both sides wait for ever (the kind of psycopg's issue
    685).
    """

    host: DatabaseHost
    answers_until: float | None = None
    """Time of ``time.monotonic`` after which ``wait`` calls ``on_late``; None waits without end."""
    on_late: Callable[[], float] | None = None
    """Returns the next such time, and raises nothing; without it, ``wait`` gives up with ``TimeoutError``."""

    def wait(self, gen: Generator[Any, Any, _T], *args: Any, **kwargs: Any) -> _T:
        """Wait for a generator of psycopg's, which yields what the socket must be ready for."""
        return super().wait(_flushing(gen, self), *args, **kwargs)


class PostgresHosts:
    """The hosts of one address; safe to use from many threads."""

    def __init__(
        self, arguments: Mapping[str, Any], where: str, *, read_only: bool, accepts_asynchronous: bool
    ) -> None:
        """Take the arguments of connections apart; nothing is connected yet.

        Args:
            arguments: of ``psycopg.connect``, with lists of hosts and ports.
            where: the address for people.
            read_only: a standby will do.
            accepts_asynchronous: write also where standbys may lack what is acknowledged.
        """
        self._each = _split(_with_environment(arguments))
        self._where = where
        self._read_only = read_only
        self._accepts_asynchronous = accepts_asynchronous
        self._mutex = threading.Lock()
        self._used: int | None = None
        self._newest: DatabaseHost | None = None

    def connect(self, *, looks_at_all: bool) -> FlushingConnection:
        """Connect to the primary; to read only, to a standby where there is none.

        Args:
            looks_at_all: ask all hosts, even if one was chosen before and no connection to it broke since.

        Raises:
            psycopg.Error: the only host of the address cannot be reached.
            RefusedError: ``WRITER_FENCED`` and ``REPLICATION_ASYNCHRONOUS``, for writing.
            WorldProtocolError: ``LOG_UNAVAILABLE`` when no host may be used.
        """
        used = self._used
        if len(self._each) == 1:
            connection, number = self._reach(0), 0
        elif used is None or looks_at_all:
            connection, number = self._choose()
        else:
            connection, number = self._again(used)
        try:
            self._admit(connection.host)
        except BaseException:
            connection.close()
            raise
        self._used = number
        return connection

    def is_current(self, connection: FlushingConnection) -> bool:
        """Return whether a connection leads to the host with the newest timeline that was used."""
        newest = self._newest
        return newest is None or (connection.host.name, connection.host.timeline) == (newest.name, newest.timeline)

    def watch(self, closed: threading.Event) -> None:
        """Compare the timelines of all hosts in intervals until an event is set, where there are several.

        Without it, a writer whose connection does not break would go on at an old primary after another was promoted.
        """
        if len(self._each) > 1:
            arguments = (weakref.ref(self), closed)
            threading.Thread(target=_watch, args=arguments, name="worldprotocol-hosts", daemon=True).start()

    def compare(self) -> None:
        """Ask all hosts; if one has a newer timeline than the one in use, no connection is current any more."""
        found = [one for one in self.survey() if one.error is None]
        newest = max(found, key=lambda one: (one.timeline, one.is_primary), default=None)
        with self._mutex:
            used = self._newest
            if used is None or newest is None or newest.system != used.system:
                return
            if newest.timeline > used.timeline:
                self._newest, self._used = newest, None

    def broke(self) -> None:
        """Note that a connection broke: the next one asks all hosts."""
        self._used = None

    def survey(self) -> list[DatabaseHost]:
        """Ask all hosts, in the order of the address."""
        found = self._ask_all()
        for _, connection in found:
            if connection is not None:
                connection.close()
        return [host for host, _ in found]

    def check_waits(self, host: DatabaseHost, names: str) -> None:
        """Refuse to write on when a primary no longer waits for standbys.

        Args:
            host: as it was when it was connected to; it waited for standbys then.
            names: its ``synchronous_standby_names`` now.

        Raises:
            RefusedError: ``REPLICATION_ASYNCHRONOUS``.
        """
        if names != host.synchronous_names:
            now = replace(host, synchronous_names=names)
            check_replication(now, hosts=2, is_accepted=self._accepts_asynchronous, where=self._where)

    def _admit(self, host: DatabaseHost) -> None:
        with self._mutex:
            if not self._read_only:
                check_not_older(host, self._newest, self._where)
                choose_primary((host,), self._where)
                accepted = self._accepts_asynchronous
                check_replication(host, hosts=len(self._each), is_accepted=accepted, where=self._where)
            self._newest = host

    def _again(self, used: int) -> tuple[FlushingConnection, int]:
        """Connect to the host that was chosen before, or to another one if it changed."""
        try:
            connection = self._reach(used)
        except psycopg.Error:
            return self._choose()
        newest = self._newest
        if newest is not None and (connection.host.is_primary, connection.host.timeline) == (
            newest.is_primary,
            newest.timeline,
        ):
            return connection, used
        connection.close()
        return self._choose()

    def _choose(self) -> tuple[FlushingConnection, int]:
        found = self._ask_all()
        hosts = [host for host, _ in found]
        chosen = None
        try:
            chosen = (choose_reader if self._read_only else choose_primary)(hosts, self._where)
        finally:
            for host, connection in found:
                if connection is not None and host is not chosen:
                    connection.close()
        number = hosts.index(chosen)
        connection = found[number][1]
        assert connection is not None
        return connection, number

    def _ask_all(self) -> list[tuple[DatabaseHost, FlushingConnection | None]]:
        with ThreadPoolExecutor(len(self._each)) as pool:
            return list(pool.map(self._try, range(len(self._each))))

    def _try(self, number: int) -> tuple[DatabaseHost, FlushingConnection | None]:
        try:
            connection = self._reach(number)
        except psycopg.Error as error:
            return DatabaseHost(_name(self._each[number]), error=_reason(error)), None
        return connection.host, connection

    def _reach(self, number: int) -> FlushingConnection:
        """Connect to one host and ask what it is."""
        arguments = self._each[number]
        connection = FlushingConnection.connect(**arguments, autocommit=True)
        try:
            if not self._read_only:
                _refuse_hidden_hosts(connection)
            self._check_encoding(connection)
            connection.host = _look(connection, _name(arguments))
        except BaseException:
            connection.close()
            raise
        connection.prepare_threshold = 2
        return connection

    def _check_encoding(self, connection: FlushingConnection) -> None:
        """Refuse a database that does not know the encoding of its texts, so that each program reads other ones.

        Raises:
            RefusedError: ``DATABASE_ENCODING``.
        """
        encoding = connection.info.parameter_status("server_encoding")
        if encoding is not None and encoding.lower() == _NO_ENCODING:
            raise RefusedError(
                ErrorCode.DATABASE_ENCODING,
                f"The database {self._where} has the encoding {encoding}: its texts are bytes without an encoding. "
                "Create one with `CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0`, and use that.",
                store=self._where,
                encoding=encoding,
            )


def _watch(of: weakref.ref[PostgresHosts], closed: threading.Event) -> None:
    while not closed.wait(COMPARE_S):
        hosts = of()
        if hosts is None:
            return
        with suppress(psycopg.Error, WorldProtocolError, OSError, RuntimeError):  # the next connection says it
            hosts.compare()
        del hosts


def _refuse_hidden_hosts(connection: FlushingConnection) -> None:
    """Refuse several hosts of a service file, because libpq asks only the first one that answers.

    Raises:
        RefusedError: ``INVALID_ADDRESS``.
    """
    used = {option.keyword.decode(): (option.val or b"").decode() for option in connection.pgconn.info}
    for name in ("host", "hostaddr"):
        if "," in used.get(name, ""):
            raise RefusedError(
                ErrorCode.INVALID_ADDRESS,
                f"The hosts {used[name]} come from a service file. Name them in the address "
                "(?host=HOST:PORT&host=HOST:PORT), so that a writer asks all of them which one is the primary.",
                hosts=used[name],
            )


def _look(connection: FlushingConnection, name: str) -> DatabaseHost:
    """Ask a host what it is; two or three round trips, once for each connection.

    A server that lacks these functions, or refuses them to the role, is taken for a primary without standbys.
    """
    try:
        row = connection.execute(_STATE).fetchone()
    except (errors.InsufficientPrivilege, errors.UndefinedFunction, errors.FeatureNotSupported):
        return DatabaseHost(name, is_primary=True)
    assert row is not None
    system, is_primary, timeline, position, names, commit, sees_all = row
    standbys: tuple[Standby, ...] = ()
    if is_primary:
        standbys = tuple(Standby(*one) for one in connection.execute(_STANDBYS))
    elif sees_all:
        stored = connection.execute(_STORED_TIMELINE).fetchone()
        timeline = max(timeline, (stored or (0,))[0] or 0)
    return DatabaseHost(
        name,
        is_primary=is_primary,
        system=system,
        timeline=timeline,
        position=position or 0,
        synchronous_names=names,
        synchronous_commit=commit,
        standbys=standbys,
        sees_all=sees_all,
    )


def _with_environment(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with the hosts that the environment names where the address names none."""
    given = dict(arguments)
    if any(given.get(name) for name in ("host", "hostaddr", "service")) or "PGSERVICE" in os.environ:
        return given
    for name, variable in (("host", "PGHOST"), ("hostaddr", "PGHOSTADDR"), ("port", "PGPORT")):
        if not given.get(name) and os.environ.get(variable):
            given[name] = os.environ[variable]
    return given


def _split(arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the arguments of a connection to each host; libpq's rules for lists of hosts and ports."""
    lists = {name: str(arguments[name]).split(",") for name in ("host", "hostaddr") if arguments.get(name)}
    count = max((len(each) for each in lists.values()), default=1)
    if count == 1:
        return [dict(arguments)]
    ports = str(arguments.get("port") or "").split(",")
    ports = ports * count if len(ports) == 1 else ports
    each: list[dict[str, Any]] = []
    for number in range(count):
        one = _DEFAULTS | {name: value for name, value in arguments.items() if name not in (*lists, "port")}
        one |= {name: values[number] for name, values in lists.items() if number < len(values)}
        if number < len(ports) and ports[number]:
            one["port"] = ports[number]
        if one not in each:
            each.append(one)
    return each


def _name(arguments: Mapping[str, Any]) -> str:
    host = arguments.get("host") or arguments.get("hostaddr") or "the local server"
    port = arguments.get("port")
    return f"{host}:{port}" if port else str(host)


def _reason(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _flushing(gen: Generator[Any, Any, _T], connection: FlushingConnection) -> Generator[Any, Any, _T]:
    """Pass a psycopg generator on, and flush what is not sent yet whenever it only waits to read.

    Raises:
        TimeoutError: at the given time there was no answer; psycopg resumes a generator in intervals without one.
    """
    pgconn, until = connection.pgconn, connection.answers_until
    try:
        wanted = next(gen)
        while True:
            if wanted == _READ and pgconn.flush():
                ready = (yield _READ_WRITE) & _READ
                if not ready:
                    continue
            else:
                ready = yield wanted
            if not ready and until is not None and time.monotonic() > until:
                if connection.on_late is None:
                    raise TimeoutError
                until = connection.on_late()
            wanted = gen.send(ready)
    except StopIteration as end:
        result: _T = end.value
        return result
