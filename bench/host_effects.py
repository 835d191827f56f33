"""Journaled effects per second, SQLite FULL, one proposal at a time and many at once, against the bare driver."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from bench.turns import Timed, in_turns, seconds
from host import handler
from world.core import ActionContext, Domain, effect, set_
from world.log import LoggedEvent
from worldprotocol import Realm

EFFECTS: Final = 160
CALLERS: Final = 16
ROUNDS: Final = 5
WHERE: Final = "FILE:/out/{input.caller}"


class Tally(BaseModel):
    """The state: how many effects each caller made."""

    made: dict[str, int] = {}


class Work(BaseModel):
    """The input: whose work it is, and how much."""

    caller: str
    effects: int


works = Domain("urn:bench:effects", version="1.0.0", state=Tally)


def _steps(wanted: Work, kind: str) -> Any:
    for number in range(wanted.effects):
        if kind == "trivial":
            yield effect("trivial", number=number)
        else:
            yield effect("file.write", path=f"/out/{wanted.caller}/{number % 10}.txt", text=f"{number}\n")
    return [set_(f"made.{wanted.caller}", wanted.effects)]


@works.action("trivial", version="1")
def trivial(ctx: ActionContext, wanted: Work) -> Any:
    """Make effects that do nothing."""
    return (yield from _steps(wanted, "trivial"))


@works.action("watched", version="1", manifest=[{"predicate": "MUTATES", "resource": WHERE + "/*"}])
def watched(ctx: ActionContext, wanted: Work) -> Any:
    """Make effects that do nothing, in a session with leases."""
    return (yield from _steps(wanted, "trivial"))


@works.action("files", version="1", manifest=[{"predicate": "MUTATES", "resource": WHERE + "/*"}])
def files(ctx: ActionContext, wanted: Work) -> Any:
    """Write small files."""
    return (yield from _steps(wanted, "file.write"))


@handler("trivial", idempotent=True)
def make_trivial(params: Any, call: Any) -> int:
    """Do nothing."""
    return int(params["number"])


def opened(place: Path, *, workspace: bool) -> Realm:
    """Found a realm with as many actors as there are callers."""
    place.mkdir()
    parts: dict[str, Any] = {}
    if workspace:
        for caller in range(CALLERS):
            (place / "w" / "out" / f"c{caller}").mkdir(parents=True)
        parts["workspace"] = place / "w"
    world = Realm.create(place / "world.db", domain=works, effects=[make_trivial], **parts)
    for caller in range(CALLERS):
        world.register(f"c{caller}", "agent", binding={"kind": "auto_approve"})
    return world


def states_of_an_effect(world: Realm, action: str, count: int = 20) -> list[bytes]:
    """Return the states of the events that each effect adds, which are committed together."""
    before = world.log.head().size
    _act(world, action, 0, count)
    found: list[LoggedEvent] = list(world.log.read(before))
    effects = [event.state for event in found if event.topic.startswith(("effect.", "run."))]
    return [max(effects, key=len)] if not effects else effects[: max(1, round(len(effects) / count))]


def _act(world: Realm, action: str, caller: int, count: int) -> None:
    name = f"c{caller}"
    wanted = {"caller": name, "effects": count}
    done = world.act(name, action, wanted, scope=[f"made.{name}"], execution_key=name)
    if done.status not in ("completed", "executing"):
        raise SystemExit(f"{action} ended {done.status}: {done.error}")


def _at_once(world: Realm, action: str, count: int) -> None:
    each = count // CALLERS
    with ThreadPoolExecutor(CALLERS) as pool:
        for done in [pool.submit(_act, world, action, caller, each) for caller in range(CALLERS)]:
            done.result()
    while world.archive.peek(lambda realm: bool(realm.proposals)):  # another caller's thread may make its effects
        time.sleep(0.001)


class Bare:
    """The bare driver with a table of bytes."""

    def __init__(self, path: Path) -> None:
        """Open it as the log does."""
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, state BLOB)")

    def commit(self, states: Iterable[bytes], commits: int) -> None:
        """Commit the same bytes, once for each effect."""
        rows = [(state,) for state in states]
        for _ in range(commits):
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany("INSERT INTO event (state) VALUES (?)", rows)
            self._database.execute("COMMIT")

    def close(self) -> None:
        """Close it."""
        self._database.close()


def measure(place: Path, effects: int = EFFECTS) -> None:
    """Print the rates."""
    plain, ground = opened(place / "plain", workspace=False), opened(place / "ground", workspace=True)
    bare = Bare(place / "bare.db")
    states = states_of_an_effect(plain, "trivial")
    many = effects // CALLERS * CALLERS * 2

    def one(world: Realm, action: str) -> Timed:
        return lambda: seconds(lambda: _act(world, action, 0, effects)) / effects

    def several(world: Realm, action: str) -> Timed:
        return lambda: seconds(lambda: _at_once(world, action, many)) / many

    measured = {
        "bare sqlite3, one commit each": lambda: seconds(lambda: bare.commit(states, effects)) / effects,
        "trivial effects": one(plain, "trivial"),
        f"trivial effects, {CALLERS} proposals at once": several(plain, "trivial"),
        "trivial effects, beside a workspace, no leases": one(ground, "trivial"),
        "trivial effects, watched": one(ground, "watched"),
        f"trivial effects, watched, {CALLERS} at once": several(ground, "watched"),
        "file.write, watched": one(ground, "files"),
        f"file.write, watched, {CALLERS} at once": several(ground, "files"),
    }
    found = in_turns(measured, ROUNDS)
    base = found["bare sqlite3, one commit each"]
    print(f"  {effects} effects in a proposal; {len(states)} events of {sum(map(len, states)):,} bytes for each")
    for name, taken in found.items():
        print(f"  {name:<52}{1 / taken:>10,.0f}/s   ratio {base / taken:>5.2f}", flush=True)
    plain.close()
    ground.close()
    bare.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        measure(Path(temporary))
