"""A realm that does one turn after the other, each with many effects, and a parent that kills it again and again.

Run as a program, it imports everything once and then forks: ``python -m tests.pipeline.turns ADDRESS FOLDER KILLS
SEED`` kills that many children, each after a random number of events that it has reported
(``tests.pipeline.counted_kills``), and leaves the rest to the next process that opens the realm.
"""

from __future__ import annotations

import importlib
import os
import random
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from host import handler
from tests.pipeline.counted_kills import ReportingClock, await_reports
from world.core import ActionContext, Domain, effect, set_
from worldprotocol.api.config import WorkspaceConfig
from worldprotocol.api.realm import Realm

MOST_REPORTS = 60
"""After how many reported events a child is killed at most; a turn reports about 20."""


class Book(BaseModel):
    turn: int = 0
    before: str = "none"
    told: list[Any] = []


turns = Domain("urn:test:turns", version="1.0.0", state=Book)


@turns.action(
    "turn",
    version="1",
    manifest=[
        {"predicate": "MUTATES", "resource": "FILE:/log.txt"},
        {"predicate": "PROVIDES", "resource": "FILE:/made/{turn}"},
        {"predicate": "MUTATES", "resource": "FILE:/made/{turn}"},
        {"predicate": "RENAMES", "resource": "FILE:/made/{turn}", "to": "FILE:/kept/{turn}"},
        {"predicate": "DELETES", "resource": "FILE:/kept/{before}"},
    ],
)
def turn(ctx: ActionContext) -> Any:
    number = ctx.data["turn"]
    told = []
    told.append((yield effect("file.append", path="/log.txt", text=f"{number} begins\n")))
    told.append((yield effect("count", what=f"{number} first")))
    told.append((yield effect("file.create", path=f"/made/{number}", text=str(number))))
    told.append((yield effect("file.write", path=f"/made/{number}", text=f"{number}, in full")))
    told.append((yield effect("timer.wait", ms=1)) is not None)
    told.append((yield effect("file.rename", **{"from": f"/made/{number}", "to": f"/kept/{number}"})))
    if number:
        told.append((yield effect("file.delete", path=f"/kept/{number - 1}")))
    told.append((yield effect("count", what=f"{number} last")))
    told.append((yield effect("file.append", path="/log.txt", text=f"{number} ends\n")))
    return [set_("turn", number + 1), set_("before", str(number)), set_("told", told)]


def counting(outside: Path) -> Any:
    """Return a handler that adds a line to a file outside, once for each idempotency key."""

    @handler("count", idempotent=True)
    def count(params: Any, call: Any) -> Any:
        line = f"{call.idempotency_key} {params['what']}\n".encode()
        with outside.open("ab+", buffering=0) as file:
            file.seek(0)
            if line not in file.read():
                file.write(line)
        return params["what"]

    return count


def parts_of(folder: Path) -> dict[str, Any]:
    """Return what the realm is opened with; its workspace and the file outside lie in a folder."""
    root, counter = folder / "ws", folder / "outside" / "count"
    for place in (root / "made", root / "kept", counter.parent):
        place.mkdir(parents=True, exist_ok=True)
    workspace = WorkspaceConfig(root=str(root), write=[str(counter.parent)])
    return {"domain": turns, "effects": [counting(counter)], "workspace": workspace}


def found(address: str, folder: Path) -> None:
    with Realm.create(address, **parts_of(folder)) as world:
        world.register("ann", "agent", binding={"kind": "auto_approve"})


def opened(address: str, folder: Path, **parts: Any) -> Realm:
    return Realm.open(address, **parts_of(folder), **parts)


def go_on(address: str, folder: Path, until: int | None = None, **parts: Any) -> None:
    """Do turns until there are so many; None is for ever."""
    with opened(address, folder, **parts) as world:
        while until is None or world.data()["turn"] < until:
            done = world.act("ann", "turn")
            assert done.status == "completed", done.to_wire()


def main(address: str, folder: Path, kills: int, seed: str) -> None:
    with tempfile.TemporaryDirectory() as elsewhere:  # so that all that is imported on the way is there already
        found(f"sqlite:///{elsewhere}/w.db", Path(elsewhere))
        go_on(f"sqlite:///{elsewhere}/w.db", Path(elsewhere), until=1)
    importlib.import_module("psycopg")
    dice = random.Random(seed)
    for _ in range(kills):
        kill_one(address, folder, dice.randint(1, MOST_REPORTS))


def kill_one(address: str, folder: Path, reports: int) -> None:
    """Do turns in a child that is killed after so many reported events.

    Raises:
        SystemExit: the child ended by itself.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            go_on(address, folder, clock=ReportingClock(writing))
        except BaseException:  # noqa: BLE001 - a forked child goes nowhere else
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        await_reports(reading, reports)
    finally:
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        os.close(reading)
    if not os.WIFSIGNALED(status):
        raise SystemExit(f"a child ended by itself, with status {status}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
