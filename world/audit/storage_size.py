"""The bytes that the tables of a store take in a database server."""

from __future__ import annotations

from typing import Final

from world.log.reading import LogReader
from world.log.sql.statement import SqlStatement

__all__ = ["stored_bytes"]

_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::BIGINT FROM pg_class c
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'wp_event'::regclass)
  AND c.relkind = 'r' AND starts_with(c.relname, 'wp_')"""


def stored_bytes(log: LogReader) -> int | None:
    """Return the bytes of all tables of the store of a log, indexes included; None for a log in a file.

    Raises:
        WorldProtocolError: the database cannot be read.
    """
    if log.backend != "postgresql":
        return None
    ((size,),) = log.query(SqlStatement(_SIZE, (), {}))
    return int(size)
