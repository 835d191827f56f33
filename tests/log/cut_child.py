"""Cuts a log, and reports each commit on stdout before it is made; it may be killed after any report.

Called with the log and the position.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any, cast

from world.log.backends.sqlite import SqliteStore
from worldprotocol.export.archive import cutting
from worldprotocol.export.archive.manifest import ArchiveFolder


def main(address: str, upto: int) -> None:
    commit = SqliteStore.commit

    def reporting(store: SqliteStore, batch: Any) -> None:
        sys.stdout.write("commit\n")
        sys.stdout.flush()
        commit(store, batch)

    SqliteStore.commit = reporting  # type: ignore[method-assign, assignment]
    cutting.AT_ONCE = 40  # type: ignore[misc]
    archive = cast("ArchiveFolder", SimpleNamespace(digest="0" * 64))
    with cutting.open_for_cutting(address) as log:
        cutting.cut(log, cutting.CutPlan((archive,), upto, 0), by="operator", now_ms=0)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
