"""Records the golden log of a directory: ``python -m tests.golden.realms``. One that is kept is never recorded again.

A harbour is listed, moved, archived and restored; each of these begins once in vain and is abandoned. Its places are in
a temporary folder, which has another name in the log. Beside the log stands what it comes to.
"""

from __future__ import annotations

import json
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from tests.golden.garden import FOLDER, START, the_same_worker
from tests.golden.generate import rehashed
from tests.golden.harbour import harbour
from world.clock import ManualClock, SequentialIds
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol.directory.directory import RealmDirectory
from worldprotocol.directory.events import Work, WorkBegun
from worldprotocol.export.jsonl import export_log

LOG: Final = FOLDER / "directories" / "realms.jsonl"
SUMMARY: Final = LOG.with_suffix(".summary.json")
PLACE: Final = "/srv/realms"


@the_same_worker()
def record() -> bytes:
    """Play the scenes, and return the exported log of the directory."""
    clock, exported = ManualClock(START, 10), BytesIO()
    with tempfile.TemporaryDirectory() as folder, RealmDirectory.found(f"{folder}/realms.db", clock=clock) as directory:
        _played(directory, Path(folder), clock)
        export_log(directory.log.log, exported)
    lines = exported.getvalue().replace(folder.encode(), PLACE.encode()).splitlines()
    return b"".join(rehashed([json.loads(line) for line in lines]))


def _played(directory: RealmDirectory, folder: Path, clock: ManualClock) -> None:
    first, second, third = (folder / f"{name}.db" for name in ("first", "second", "third"))
    directory.create("harbour", first, domain=harbour, clock=clock, ids=SequentialIds("realms")).close()
    _begun_in_vain(directory, "move", str(second))
    directory.move("harbour", second, by="ann")
    _begun_in_vain(directory, "archive", str(folder / "archive"))
    directory.archive("harbour", folder / "archive", by="ann")
    _begun_in_vain(directory, "restore", str(third))
    directory.restore("harbour", third, by="ann")


def _begun_in_vain(directory: RealmDirectory, work: Work, target: str) -> None:
    with directory.log.change() as change:
        change.append(WorkBegun(at=change.at, by="ben", name="harbour", work=work, target=target))
    directory.abandon("harbour", work, by="ann")


def summary(directory: RealmDirectory) -> dict[str, Any]:
    """Return what the log of a directory comes to: where the realms are, and what happened to them."""
    return {
        "head": str(directory.log.log.head()),
        "places": {one.name: [one.place, one.archive] for one in directory.entries()},
        "history": [[position, event.TOPIC, event.by] for position, event in directory.history("harbour")],
    }


def stored(address: str) -> None:
    """Store the kept log at an address."""
    lines = [json.loads(line) for line in LOG.read_bytes().splitlines()]
    events = [
        NewEvent(one["stream"], one["topic"], one["schemaVersion"], canonical_bytes(one["state"]))
        for one in lines
        if "leaf" in one
    ]
    with open_log(address, create=True) as log, log.write() as transaction:
        transaction.append(events)


if __name__ == "__main__":
    if LOG.exists():
        sys.exit(f"{LOG.name} is there already; golden logs are only ever added.")
    LOG.parent.mkdir(exist_ok=True)
    LOG.write_bytes(record())
    with tempfile.TemporaryDirectory() as place:
        stored(f"{place}/realms.db")
        with RealmDirectory.open(f"{place}/realms.db", read_only=True) as kept:
            text = json.dumps(summary(kept), indent=1, sort_keys=True)
    SUMMARY.write_text(text + "\n", encoding="utf-8")
