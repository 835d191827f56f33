"""A yard whose realm is moved, and its processes: they count, move, or crash in the middle of an effect.

``python -m tests.directory.yard count DIRECTORY NAME ACTOR`` counts until a line comes on stdin, and prints the id of
each intent whose proposal completed. ``... move DIRECTORY NAME TARGET STEP`` moves and prints each step; at STEP it
waits to be killed. ``... crash DIRECTORY NAME`` ends while it makes an effect that must not be made twice.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from worldprotocol import ActionContext, Domain, effect, handler, set_
from worldprotocol.directory.directory import RealmDirectory
from worldprotocol.directory.placed_realm import PlacedRealm

ROOT = Path(__file__).parent.parent.parent
NAME = "yard"


class Yard(BaseModel):
    counts: dict[str, int] = {}
    sent: list[str] = []


class Count(BaseModel):
    who: str


class Message(BaseModel):
    text: str


yard = Domain("urn:test:yard", version="1.0.0", state=Yard)


@yard.action("count", version="1")
def count(ctx: ActionContext, input: Count) -> Any:  # noqa: A002
    return [set_(f"counts.{input.who}", ctx.data["counts"].get(input.who, 0) + 1)]


@yard.action("send", version="1")
def send(ctx: ActionContext, input: Message) -> Any:  # noqa: A002
    yield effect("mail.send", text=input.text)
    return [set_("sent", [*ctx.data["sent"], input.text])]


@handler("mail.send", time_limit_ms=60_000, idempotent=False)
def mail(params: Any, call: Any) -> Any:
    if params["text"] == "crash":
        os._exit(3)
    return {"ok": True}


def create(directory: RealmDirectory, place: str | Path, actors: int = 1) -> PlacedRealm:
    """Found the yard at a place, with people, and list it."""
    realm = directory.create(NAME, place, domain=yard, effects=[mail])
    for number in range(actors):
        realm.register(f"a{number}", "agent", binding={"kind": "auto_approve"})
    realm.register("ann", "human", binding={"kind": "auto_approve"})
    realm.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"]})
    return realm


def opened(directory: RealmDirectory, name: str = NAME) -> PlacedRealm:
    """Open the yard where it is."""
    return directory.realm(name, domain=yard, effects=[mail])


def process(*arguments: object) -> subprocess.Popen[str]:
    """Start a process of the yard."""
    command = [sys.executable, "-m", "tests.directory.yard", *map(str, arguments)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _count(directory: RealmDirectory, name: str, actor: str) -> None:
    stopped = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        stopped.set()

    threading.Thread(target=wait, daemon=True).start()
    with opened(directory, name) as realm:
        while not stopped.is_set():
            intent = realm.issue(actor, "count", {"who": actor})
            if realm.submit(intent).status == "completed":
                print(intent.intent_id, flush=True)


def _move(directory: RealmDirectory, name: str, target: str, at: str) -> None:
    def on_step(step: str) -> None:
        print(step, flush=True)
        if step == at:
            sys.stdin.readline()

    directory.move(name, target, by="mover", on_step=on_step)


def _crash(directory: RealmDirectory, name: str) -> None:
    with opened(directory, name) as realm:
        realm.act("ann", "send", {"text": "crash"})


def main(role: str, address: str, *arguments: str) -> None:
    """Play a role."""
    with RealmDirectory.open(address) as directory:
        roles: dict[str, Any] = {"count": _count, "move": _move, "crash": _crash}
        roles[role](directory, *arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
