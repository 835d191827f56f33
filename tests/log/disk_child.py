"""Fills the disk under a log until it refuses, makes room, and goes on; prints what happened as JSON.

Called with a directory and what ``make_room`` does: ``ballast`` removes a file that was put there beforehand, ``limit``
lifts the limit of this process on the size of files.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from pathlib import Path

from world.errors import StorageFullError
from world.log import EventLog, NewEvent, open_log
from world.log.audit import verify_storage, verify_tree

LIMIT_BYTES = 1 << 20
STATE = b'"%s"' % (b"x" * 20_000)


def append(log: EventLog) -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, STATE)])


def make_full(way: str, ballast: Path) -> None:
    if way == "ballast":
        ballast.write_bytes(bytes(600_000))
    else:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, resource.RLIM_INFINITY))


def make_room(way: str, ballast: Path) -> None:
    if way == "ballast":
        ballast.unlink()
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def probed(log: EventLog) -> str | None:
    """Return the code of what is in the way of a write, as a probe finds it."""
    size = log.head().size
    try:
        log.probe(1.0)
    except StorageFullError as full:
        return full.code
    finally:
        assert log.head().size == size
    return None


def probed_by_reading(place: str) -> str | None:
    with open_log(place, read_only=True) as log:
        return probed(log)


def main(folder: Path, way: str) -> None:
    ballast, place = folder / "ballast", str(folder / "world.db")
    make_full(way, ballast)
    told: dict[str, object] = {}
    with open_log(place, create=True) as log:
        done = 0
        try:
            for _ in range(1_000):
                append(log)
                done += 1
        except StorageFullError as full:
            told |= {"code": full.code, "message": full.message}
        told |= {"appended": done, "size": log.head().size, "read": len(list(log.read()))}
        try:
            append(log)
        except StorageFullError as full:
            told["again"] = full.code
        told["probes"] = [probed(log), probed_by_reading(place)]
        make_room(way, ballast)
        told["probes_after"] = [probed(log), probed_by_reading(place)]
        append(log)
        told["after"] = log.head().size
    with open_log(place, read_only=True) as log:
        told["reopened"] = len(list(log.read()))
        told["findings"] = [finding.message for finding in (*verify_tree(log), *verify_storage(log))]
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
