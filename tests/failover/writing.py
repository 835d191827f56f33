"""A process of writers: each submits intents with an effect, and repeats an intent until it is acknowledged.

``python -m tests.failover.writing ADDRESS FOLDER NAME`` reads one number a line from its standard input, has its four
writers submit so many intents each, and prints ``done``; the end of the input ends it. What is acknowledged is appended
to ``FOLDER/acknowledged``, each effect that is made to ``FOLDER/effects``, by one system call a line.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from host import handler
from host.effects import EffectHandler
from world.core import Domain, effect, set_
from world.errors import WorldProtocolError
from worldprotocol import Realm
from worldprotocol.api.callers.keyed import caller_of, submit_once
from worldprotocol.api.callers.request_keys import keyed

T = TypeVar("T")

WRITERS = 4
PASSING = ("COMMIT_UNKNOWN", "LOG_UNAVAILABLE", "LOG_BUSY")
"""Codes after which a caller repeats what it has asked for."""


class Tally(BaseModel):
    paid: dict[str, int] = {}


class Payment(BaseModel):
    to: str
    amount: int


bank = Domain("urn:test:bank", version="1.0.0", state=Tally)


@bank.action("pay", version="1")
def pay(ctx: Any, input: Payment) -> Any:  # noqa: A002
    done = yield effect("bank.transfer", to=input.to, amount=input.amount)
    return [set_(f"paid.{input.to}", done["number"])]


def append_line(path: Path, line: str) -> None:
    """Append a line by one system call, which no other process's line can split."""
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def transfers(folder: Path) -> EffectHandler:
    """Return the handler: an effect that must not be made twice, and of which another system has no memory."""

    @handler("bank.transfer", time_limit_ms=60_000, idempotent=False)
    def transfer(params: Any, call: Any) -> Any:
        append_line(folder / "effects", call.idempotency_key)
        return {"number": params["amount"]}

    return transfer


def until_answered(call: Callable[[], T], repeated: Counter[str]) -> T:
    """Return what a call returns, which is repeated after each error that passes."""
    while True:
        try:
            return call()
        except WorldProtocolError as error:
            if error.code not in PASSING:
                raise
            repeated[error.code] += 1
            time.sleep(0.2)


def write(realm: Realm, folder: Path, to: str, count: int, repeated: Counter[str]) -> None:
    """Submit intents one after the other."""
    for number in range(count):
        body = {"to": to, "amount": number}
        intent = until_answered(partial(realm.issue, "bot", "pay", body, scope=[f"paid.{to}"]), repeated)
        caller = keyed(caller_of(realm, "bot"), intent.intent_id, "pay", body)
        proposal = until_answered(partial(submit_once, realm, caller, intent), repeated)
        append_line(folder / "acknowledged", f"{intent.intent_id} {proposal.status}")


def main(address: str, place: str, name: str) -> None:
    """Write as often as the standard input says."""
    folder = Path(place)
    repeated: Counter[str] = Counter()
    failed: list[BaseException] = []

    def work(realm: Realm, to: str, count: int) -> None:
        try:
            write(realm, folder, to, count, repeated)
        except BaseException as error:  # noqa: BLE001 - the process ends with it
            failed.append(error)

    with Realm.open(address, domain=bank, effects=[transfers(folder)]) as realm:
        print("open", flush=True)
        for line in sys.stdin:
            writers = [
                threading.Thread(target=work, args=(realm, f"{name}_{one}", int(line))) for one in range(WRITERS)
            ]
            for one in writers:
                one.start()
            for one in writers:
                one.join()
            if failed:
                raise failed[0]
            print("done", *(f"{code}={count}" for code, count in sorted(repeated.items())), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
