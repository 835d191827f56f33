"""Taking and giving back a backup, against ``cp -a`` of the same files, with and without waiting for the disk."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.turns import Timed, in_turns, seconds, show
from host.backups import Backups
from host.workspace import Workspace
from world.klis.resources.resource_reading import canonical_resource

SMALL_FILES: Final = 10_000
SMALL_BYTES: Final = 2_000
LARGE_BYTES: Final = 200_000_000
ROUNDS: Final = 3
_FICLONE: Final = 0x40049409


def reflinks(place: Path) -> bool:
    """Tell whether the file system lets two files share their blocks."""
    import fcntl

    with tempfile.TemporaryFile(dir=place) as one, tempfile.TemporaryFile(dir=place) as other:
        one.write(b"x" * 4096)
        one.flush()
        try:
            fcntl.ioctl(other.fileno(), _FICLONE, one.fileno())
        except OSError as error:
            if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV):
                return False
            raise
    return True


def fill(folder: Path, turn: int, files: int, size: int) -> None:
    """Write files whose content is of this turn, so that no backup knows it, and bring them to the disk."""
    for number in range(files):
        place = folder / f"{number // 500:03}"
        if number % 500 == 0:
            place.mkdir(parents=True, exist_ok=True)
        head = f"{turn} {number}\n".encode()
        with open(place / f"{number}.bin", "wb") as file:
            file.write(head)
            if size > 1 << 20:
                file.writelines(os.urandom(1 << 10) * (1 << 10) for _ in range(size >> 20))
            else:
                file.write(os.urandom(size // 2).hex().encode())
    os.sync()


class Ground:
    """A workspace of some files, and all that is done with it."""

    def __init__(self, place: Path, files: int, size: int) -> None:
        """Make it."""
        self.root, self.copy = place / "w", place / "copy"
        self.root.mkdir(parents=True)
        self._files, self._size = files, size
        self._turns = itertools.count()
        self._backups = Backups(Workspace(self.root))
        self._last = ""
        self._on_disk = 0.0
        self._all = [canonical_resource("FILE:/data/*")]
        self._fill()

    def _fill(self) -> None:
        fill(self.root / "data", next(self._turns), self._files, self._size)

    def copied(self) -> float:
        """Copy everything to a new place."""
        shutil.rmtree(self.copy, ignore_errors=True)
        os.sync()
        return self._copied(self.root / "data", self.copy)

    def copied_back(self) -> float:
        """Copy everything back over what was changed."""
        self._fill()
        return self._copied(self.copy, self.root / "data")

    def _copied(self, source: Path, target: Path) -> float:
        told = f"{source}/." if target.exists() else str(source)
        taken = seconds(lambda: subprocess.run(["cp", "-a", told, str(target)], check=True))
        self._on_disk = taken + seconds(lambda: subprocess.run(["sync", "-f", str(target)], check=True))
        return taken

    def on_disk(self) -> float:
        """Return what the last copy took until it was on the disk."""
        return self._on_disk

    def taken(self) -> float:
        """Back up what no backup knows."""
        self._fill()
        return self.taken_again()

    def taken_again(self) -> float:
        """Back up what is as it was."""
        self._last = f"b{next(self._turns)}"

        def work() -> None:
            self._backups.prepare(self._all)
            self._backups.take(self._last, self._all, at=0, note={})

        return seconds(work)

    def given_back(self) -> float:
        """Give everything back, after all of it was changed."""
        self.taken()
        self._fill()
        return self.given_back_again()

    def given_back_again(self) -> float:
        """Give back what is as it was."""

        def work() -> None:
            done = self._backups.restore(self._last)
            assert not done.failed, done.failed[:3]

        return seconds(work)


def _works(ground: Ground) -> dict[str, Timed]:
    return {
        "cp -a": ground.copied,
        "cp -a, sync": ground.on_disk,
        "backup": ground.taken,
        "backup, nothing changed since the last": ground.taken_again,
        "cp -a back": ground.copied_back,
        "cp -a back, sync": ground.on_disk,
        "restore, everything changed": ground.given_back,
        "restore, nothing changed": ground.given_back_again,
    }


def measure(place: Path, files: int = SMALL_FILES, large: int = LARGE_BYTES) -> None:
    """Print what it takes for many small files and for a large one."""
    has = "has" if reflinks(place) else "has no"
    print(f"  this file system {has} reflinks; a backup is on the disk when it returns")
    for name, count, size in (("small", files, SMALL_BYTES), ("large", 1, large)):
        folder = place / f"backups-{name}"
        folder.mkdir()
        found = in_turns(_works(Ground(folder, count, size)), ROUNDS, warm=False)
        megabytes = count * size / 1e6
        print(f"  {count:,} file{'s' if count > 1 else ''} of {size:,} bytes, {megabytes:,.0f} MB")
        show(found, base="cp -a, sync")
        for told in ("backup", "restore, everything changed"):
            print(f"    {told}: {count / found[told]:,.0f} files/s, {megabytes / found[told]:,.0f} MB/s", flush=True)
        shutil.rmtree(folder)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        measure(Path(temporary))
