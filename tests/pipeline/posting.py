"""A domain whose action posts one letter outside, and an outside that counts posts by idempotency key.

``python -m tests.pipeline.posting ADDRESS OUTSIDE KIND POINT COUNT`` is a worker that kills itself with SIGKILL at the
COUNT-th letter: ``before`` its handler does anything, ``between`` the handler and the completion, or ``after`` the
completion was acknowledged; ``never`` ends when nothing is left. Counted points decide, never the time.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from host import external, handler
from host.effects import EffectHandler
from world.core import Domain, effect
from worldprotocol import Realm, Worker
from worldprotocol.api.executing.worker import WorkerReport

POINTS = ("before", "between", "after")


class Office(BaseModel):
    closed: bool = False


class Letter(BaseModel):
    number: int


post = Domain("urn:test:post", version="1.0.0", state=Office)


@post.action("send", version="1")
def send(ctx: Any, input: Letter) -> Any:  # noqa: A002
    yield effect("letter.post", number=input.number)


def declared(kind: str) -> EffectHandler:
    """Return the declaration of the effect; ``kind`` is ``idempotent`` or ``single``."""
    return external("letter.post", time_limit_ms=1_000, idempotent=kind == "idempotent")


class Outside:
    """The world outside: a database of its own, in which every post and every distinct letter is counted."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        with self._open() as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS post (key TEXT)")
            connection.execute("CREATE TABLE IF NOT EXISTS letter (key TEXT PRIMARY KEY)")

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=600, isolation_level=None)
        connection.execute("PRAGMA synchronous=OFF")  # processes are killed here, not the machine
        return connection

    def take(self, key: str) -> None:
        """Count a post, and keep the letter once by its key."""
        connection = self._open()
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO post VALUES (?)", (key,))
            connection.execute("INSERT OR IGNORE INTO letter VALUES (?)", (key,))
            connection.execute("COMMIT")
        finally:
            connection.close()

    def posts(self) -> dict[str, int]:
        """Return how often each letter was posted, by key."""
        with self._open() as connection:
            return dict(connection.execute("SELECT key, count(*) FROM post GROUP BY key"))

    def letters(self) -> int:
        """Return how many distinct letters there are."""
        with self._open() as connection:
            return int(connection.execute("SELECT count(*) FROM letter").fetchone()[0])


def poster(kind: str, outside: Outside, point: str = "never", count: int = 0) -> EffectHandler:
    """Return the handler, which kills its process at a counted point."""
    begun = 0

    @handler("letter.post", time_limit_ms=1_000, idempotent=kind == "idempotent")
    def post_letter(_params: Any, call: Any) -> Any:
        nonlocal begun
        begun += 1
        if (point, begun) == ("before", count):
            os.kill(os.getpid(), signal.SIGKILL)
        outside.take(call.idempotency_key)
        if (point, begun) == ("between", count):
            os.kill(os.getpid(), signal.SIGKILL)
        return {"posted": True}

    return post_letter


def main(address: str, outside: str, kind: str, point: str, count: str) -> None:
    """Be a worker."""
    done = 0

    def report(one: WorkerReport) -> None:
        nonlocal done
        done += one.kind == "completed"
        if (point, one.kind, done) == ("after", "completed", int(count)):
            os.kill(os.getpid(), signal.SIGKILL)

    posting = poster(kind, Outside(outside), point, int(count))
    with Realm.open(address, domain=post, effects=[posting], execute=False, durability="normal") as realm:
        Worker(realm, on_report=report).run(once=point == "never")


if __name__ == "__main__":
    main(*sys.argv[1:])
