"""A process that counts under the log's lock until it is told to end: ``stopping_child ADDRESS NAME``.

It prints each number that was acknowledged, and at the end the codes of what was refused.
"""

from __future__ import annotations

import select
import sys
import time
from typing import Any

from pydantic import BaseModel

from world.core import ActionContext, Domain, set_
from world.errors import WorldProtocolError
from world.limits import Limits
from worldprotocol import Realm

HELD_S = 0.004
"""How long an action runs under the lock, so that a process is stopped there more often than elsewhere."""

UNPREPARED = Limits(max_preparations=0)
"""Actions are called under the log's lock."""


class Cells(BaseModel):
    cells: dict[str, int] = {}


class Cell(BaseModel):
    name: str
    number: int


cells = Domain("urn:test:stopped", version="1.0.0", state=Cells)


@cells.action("put", version="1")
def put(ctx: ActionContext, cell: Cell) -> Any:
    end = time.monotonic() + HELD_S
    while time.monotonic() < end:
        pass
    return [set_(f"cells.{cell.name}", cell.number)]


def counts(world: Realm, name: str, number: int) -> bool:
    """Put a number, and return whether it was acknowledged."""
    return world.act("ann", "put", {"name": name, "number": number}).status == "completed"


def main(address: str, name: str) -> None:
    """Count until a line is read."""
    refused: list[str] = []
    with Realm.open(address, domain=cells, limits=UNPREPARED) as world:
        number = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            number += 1
            try:
                if counts(world, name, number):
                    print(number, flush=True)
            except WorldProtocolError as error:
                refused.append(error.code)
    print(" ".join(["ended", *refused]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
