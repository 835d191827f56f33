"""A process that submits charges until it is killed; each real charge leaves a line outside of the log.

It reports its steps (``tests.pipeline.counted_kills``): ``crashing_child ADDRESS OUTSIDE KIND PIPE``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from host import handler
from tests.pipeline.counted_kills import ReportingClock, report
from tests.pipeline.shop import ACTORS, house, shop
from worldprotocol.api.realm import Realm


def main(address: str, outside: str, idempotent: bool, pipe: int) -> None:
    ledger = Path(outside)

    @handler("bank.charge", idempotent=idempotent, time_limit_ms=10_000)
    def charge(params: Any, call: Any) -> Any:
        with ledger.open("a") as lines:
            lines.write(call.idempotency_key + "\n")
            lines.flush()
            os.fsync(lines.fileno())
        report(pipe)
        return {"receipt": call.idempotency_key}

    clock = ReportingClock(pipe)
    world = Realm.open(address, domain=shop, policies=[house], effects=[charge], clock=clock)
    assert "ann" in ACTORS
    while True:
        world.act("ann", "charge", {"amount": 1, "times": 3})


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3] == "idempotent", int(sys.argv[4]))
