"""Takes a backup on a disk that is too small for it, fills the disk, and rolls back; prints what happened as JSON.

Called with a folder and how room is short: ``mounted`` (the folder is a small file system) or ``limit`` (on the size of
files).
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from host.backups import Backups
from tests.host.trees import file, workspace
from world.errors import RefusedError


def fill(path: Path) -> None:
    with open(path, "wb", buffering=0) as filling:
        try:
            while True:
                filling.write(b"x" * 4_096)
        except OSError:
            return


def main(folder: Path, way: str) -> None:
    told: dict[str, object] = {}
    with workspace(folder) as place:
        (place.root / "small").write_text("small")
        (place.root / "large").write_bytes(os.urandom(1_500_000))
        backups = Backups(place)
        backups.take("one", [file("/small"), file("/new")], at=1, note={})
        if way == "mounted":
            (place.root / "ballast").write_bytes(bytes(300_000))
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        try:
            backups.take("two", [file("/large")], at=1, note={})
        except RefusedError as refused:
            told |= {"code": refused.code, "message": refused.message}
        told["backups"] = [info.backup_id for info in backups.list()]
        told["temporary"] = os.listdir(place.private / "backups/temporary")
        (place.root / "small").write_text("changed")
        fill(place.root / "new")
        told["failed"] = backups.restore("one", also_remove=[b"ballast"]).failed
        told["content"] = (place.root / "small").read_text()
        told["left"] = sorted(os.listdir(place.root))
    print(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
