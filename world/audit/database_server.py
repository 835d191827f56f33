"""The database server of a log: its replication, the bytes of its tables, and the rights of the role."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from world.log.backends.builtin import STANDBYS
from world.log.backends.hosts import DatabaseHost, Standby, choose_reader
from world.log.reading import LogReader
from world.log.sql.statement import SqlStatement

__all__ = [
    "DatabaseHost",
    "Replication",
    "RoleRights",
    "Standby",
    "missing_rights",
    "replication",
    "role_rights",
    "stored_bytes",
    "writing_roles",
]

_COUNT: Final = re.compile(r"\s*(?:(?:ANY|FIRST)\s+)?(?P<count>\d+)\s*\(", re.IGNORECASE)

_COUNTED: Final = ("sync", "quorum")
"""States of the standbys that a commit waits for (``pg_stat_replication.sync_state``)."""

_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::BIGINT FROM pg_class c
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'wp_event'::regclass)
  AND c.relkind = 'r' AND starts_with(c.relname, 'wp_')"""

_ROLE: Final = """
SELECT current_user::TEXT, r.rolsuper, r.rolcreaterole OR r.rolcreatedb,
  has_schema_privilege(current_schema(), 'CREATE'), pg_has_role(current_user, c.relowner, 'USAGE')
FROM pg_roles r, pg_class c WHERE r.rolname = current_user AND c.oid = 'wp_event'::regclass"""
_TABLES: Final = """
SELECT t.name || ' ' || p.name
FROM unnest(ARRAY['wp_event', 'wp_head']) WITH ORDINALITY AS t(name, a),
  unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) WITH ORDINALITY AS p(name, b)
WHERE has_table_privilege(t.name, p.name) ORDER BY a, b"""

_WRITING: Final = """
SELECT r.rolname::TEXT FROM pg_class c, aclexplode(c.relacl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE c.oid = 'wp_event'::regclass AND a.privilege_type = 'INSERT' AND r.oid <> c.relowner
UNION SELECT r.rolname::TEXT FROM pg_database d, aclexplode(d.datacl) a JOIN pg_roles r ON r.oid = a.grantee
WHERE d.datname = current_database() AND a.privilege_type = 'CONNECT' AND r.rolname = 'world_engine'
ORDER BY 1"""
"""Roles that were given the right to append, and the role of docs/deploy/postgresql-roles.sql before it was."""

_KNOWN_ROLE: Final = "SELECT 1 FROM pg_roles WHERE rolname = %s::TEXT"

_MISSING: Final = """
WITH role AS (SELECT %s::TEXT AS name),
  store AS (SELECT relnamespace AS id FROM pg_class WHERE oid = 'wp_event'::regclass)
SELECT 'CONNECT' FROM role WHERE NOT has_database_privilege(role.name::NAME, current_database(), 'CONNECT')
UNION ALL SELECT 'USAGE of the schema' FROM role, store
  WHERE NOT has_schema_privilege(role.name::NAME, store.id, 'USAGE')
UNION ALL (SELECT c.relname || ' ' || p.name FROM role, store, pg_class c, unnest(CASE
    WHEN c.relname IN ('wp_event', 'wp_head') THEN ARRAY['SELECT', 'INSERT']
    WHEN c.relname IN ('wp_store', 'wp_log', 'wp_snapshot') THEN ARRAY['SELECT']
    ELSE ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE'] END) AS p(name)
  WHERE c.relnamespace = store.id AND c.relkind = 'r' AND starts_with(c.relname, 'wp_')
    AND NOT has_table_privilege(role.name::NAME, c.oid, p.name) ORDER BY c.relname, p.name DESC)"""


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


def stored_bytes(log: LogReader) -> int | None:
    """Return the bytes of all tables of the store of a log, indexes included; None for a log in a file.

    Raises:
        WorldProtocolError: the database cannot be read.
    """
    if log.backend != "postgresql":
        return None
    ((size,),) = log.query(SqlStatement(_SIZE, (), {}))
    return int(size)


@dataclass(frozen=True, slots=True)
class RoleRights:
    """A role of PostgreSQL.

    Args:
        name: the role.
        surplus: what it may do beyond appending and reading; empty for a role that fits.
    """

    name: str
    surplus: tuple[str, ...]


def role_rights(log: LogReader) -> RoleRights | None:
    """Return the role that a log was opened with; None for a log in a file.

    Raises:
        WorldProtocolError: the database cannot be read.
    """
    if log.backend != "postgresql":
        return None
    ((name, is_superuser, makes_others, makes_tables, owns),) = log.query(SqlStatement(_ROLE, (), {}))
    words = {"superuser": is_superuser, "creates roles or databases": makes_others, "owns the tables": owns}
    words["creates tables"] = makes_tables
    surplus = [text for text, applies in words.items() if applies]
    surplus += [str(row[0]) for row in log.query(SqlStatement(_TABLES, (), {}))]
    return RoleRights(str(name), ("superuser",) if is_superuser else tuple(surplus))


def writing_roles(log: LogReader) -> tuple[str, ...]:
    """Return the roles, without the owner of the tables, that write to a log or are set up to; none for a file.

    Raises:
        WorldProtocolError: the database cannot be read.
    """
    if log.backend != "postgresql":
        return ()
    return tuple(str(name) for (name,) in log.query(SqlStatement(_WRITING, (), {})))


def missing_rights(log: LogReader, role: str) -> tuple[str, ...]:
    """Return the rights that a role lacks to read a log and to append to it; none for a file.

    Args:
        log: open for reading.
        role: name of a role, which need not exist.

    Raises:
        WorldProtocolError: the database cannot be read.
    """
    if log.backend != "postgresql":
        return ()
    if not log.query(SqlStatement(_KNOWN_ROLE, ("role",), {}), role=role):
        return ("the role does not exist",)
    return tuple(str(name) for (name,) in log.query(SqlStatement(_MISSING, ("role",), {}), role=role))
