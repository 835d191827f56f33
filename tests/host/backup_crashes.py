"""Kills backups and rollbacks with SIGKILL before every single call that changes something, and looks at what is left.

Called with a folder; prints how many times it killed as JSON, or fails. It is a process of its own and has one thread,
so that it may fork.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from host.backups import Backups
from host.workspace import Workspace
from tests.host.trees import Tree, file, make, tree_of

CHANGING = frozenset(
    {"os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.utime"}
)


def arm(count: int) -> None:
    """Kill this process before its ``count``-th change; files opened for writing count too."""
    left = count

    def watch(event: str, args: tuple[Any, ...]) -> None:
        nonlocal left
        if event in CHANGING or (event == "open" and isinstance(args[2], int) and args[2] & os.O_ACCMODE):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def killed(count: int, act: Callable[[], object]) -> bool:
    """Do something in a child that is killed before its ``count``-th change, and tell whether it came to that."""
    child = os.fork()
    if not child:
        code = 1
        try:
            arm(count)
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, "the child failed"
    return os.WIFSIGNALED(status)


def fresh(folder: Path) -> Workspace:
    shutil.rmtree(folder / "ws", ignore_errors=True)
    root = folder / "ws"
    (root / ".klock").mkdir(parents=True)
    make(root, {"d/a": "a" * 5_000, "d/b": "b", "d/e/c": "c", "f": "f", "g": "a" * 5_000, "d/same": "s"})
    (root / "d/link").symlink_to("a")
    os.link(root / "d/same", root / "d/e/same")
    (root / "d/e").chmod(0o750)
    return Workspace(root)


def damage(folder: Path) -> None:
    root = folder / "ws"
    make(root, {"new/x": "x", "d/new": "n", "f": "changed"})
    shutil.rmtree(root / "d/e")
    (root / "d/e").symlink_to(folder / "outside")
    (root / "d/a").write_text("changed")
    (root / "d/b").unlink()
    (root / "d/link").unlink()
    (root / "d/link").mkdir()
    (root / "g").chmod(0o600)


RESOURCES = [file("/d/*"), file("/f"), file("/g"), file("/new/*")]


def take(place: Workspace, backup_id: str) -> None:
    backups = Backups(place)
    backups.prepare(RESOURCES)
    backups.take(backup_id, RESOURCES, at=1, note={"why": "test"})


def kill_takes(folder: Path) -> int:
    count = 0
    while True:
        place = fresh(folder)
        before = tree_of(place.root)
        if not killed(count + 1, lambda place=place: take(place, "one")):  # type: ignore[misc]
            return count
        count += 1
        backups = Backups(place)
        assert tree_of(place.root) == before
        assert [info.state for info in backups.list()] in ([], ["open"])
        assert backups.finish_interrupted() == []
        take(place, "two")
        check_restore(folder, place, before, *(info.backup_id for info in backups.list()))
        place.close()


def check_restore(folder: Path, place: Workspace, before: Tree, *backup_ids: str) -> None:
    for backup_id in backup_ids:
        damage(folder)
        assert Backups(place).restore(backup_id).failed == []
        assert without_root(tree_of(place.root)) == without_root(before)


def without_root(tree: Tree) -> Tree:
    return {name: seen for name, seen in tree.items() if name}


def kill_restores(folder: Path, chance: random.Random) -> tuple[int, int]:
    count = again = 0
    while True:
        place = fresh(folder)
        before = tree_of(place.root)
        take(place, "one")
        damage(folder)
        damaged, outside = tree_of(place.root), tree_of(folder / "outside")
        if not killed(count + 1, lambda place=place: Backups(place).restore("one", also_remove=[b"new"])):  # type: ignore[misc]
            return count, again
        count += 1
        check_halfway(place, before, damaged)
        while chance.random() < 0.7:
            if not killed(chance.randrange(1, 30), lambda place=place: Backups(place).finish_interrupted()):  # type: ignore[misc]
                break
            again += 1
        done = Backups(place).finish_interrupted()
        assert all(not restored.failed for restored in done)
        after = tree_of(place.root)
        if without_root(after) != without_root(before):
            assert (after, done) == (damaged, []), (count, done, differing(after, damaged), differing(after, before))
            assert Backups(place).restore("one", also_remove=[b"new"]).failed == []
            assert without_root(tree_of(place.root)) == without_root(before)
        assert tree_of(folder / "outside") == outside
        assert os.listdir(place.private / "backups/restoring") == []
        Backups(place).prune(now_ms=1, max_age_ms=None, max_bytes=None)
        assert os.listdir(place.private / "backups/temporary") == []
        place.close()


def differing(one: Tree, other: Tree) -> dict[bytes, Any]:
    return {
        name: (one.get(name), other.get(name)) for name in one.keys() | other.keys() if one.get(name) != other.get(name)
    }


def check_halfway(place: Workspace, before: Tree, damaged: Tree) -> None:
    """Every file is there as it was, or as it shall be, and never in between."""
    for name, seen in tree_of(place.root).items():
        if seen[0] == "file":
            assert seen[4] in {tree[name][4] for tree in (before, damaged) if len(tree.get(name, ())) > 4}, name


def main(folder: Path) -> None:
    make(folder, {"outside/c": "theirs", "outside/same": "theirs"})
    takes = kill_takes(folder)
    restores, again = kill_restores(folder, random.Random(7))
    print(json.dumps({"takes": takes, "restores": restores, "again": again}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
