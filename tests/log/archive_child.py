"""Archives a log, and reports on stdout each file and folder below the archive that it opens.

Called with the log and the folder. It waits for nobody, so that it may be killed after any report.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from world.log import open_log
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.proofs.checkpoint import checkpoint_of


def main(address: str, folder: str) -> None:
    def report(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.rename") and str(arguments[0]).startswith(folder):
            sys.stdout.write(f"{event} {arguments[0]}\n")
            sys.stdout.flush()

    sys.addaudithook(report)
    with open_log(address, read_only=True) as log:
        plan = plan_archive(log, (), 1_280, has_tables=False)
        write_archive(log, Path(folder), plan, checkpoint_of(log.root_at(plan.upto), "example.com/killed"))


if __name__ == "__main__":
    main(*sys.argv[1:])
