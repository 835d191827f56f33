"""Rights of the database role that a log is opened with, beyond those that appending needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from world.log.reading import LogReader
from world.log.sql.statement import SqlStatement

__all__ = ["RoleRights", "role_rights"]

_ROLE: Final = """
SELECT current_user::TEXT, r.rolsuper, r.rolcreaterole OR r.rolcreatedb,
  has_schema_privilege(current_schema(), 'CREATE'), pg_has_role(current_user, c.relowner, 'USAGE')
FROM pg_roles r, pg_class c WHERE r.rolname = current_user AND c.oid = 'wp_event'::regclass"""
_TABLES: Final = """
SELECT t.name || ' ' || p.name
FROM unnest(ARRAY['wp_event', 'wp_head']) WITH ORDINALITY AS t(name, a),
  unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) WITH ORDINALITY AS p(name, b)
WHERE has_table_privilege(t.name, p.name) ORDER BY a, b"""


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
