"""One run of a varied recheck, as a separate process; see ``environment_variation``.

``environment_variation`` starts it with the import path, which is set before this module is imported.

It reads JSON from stdin, writes one line of JSON for each divergence, and a last one with its position. Output of the
loaded code goes to stderr.
"""

from __future__ import annotations

import json
import locale
import os
import random
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final

from world.errors import WorldProtocolError
from worldprotocol.analysis.recheck.recheck import Rechecking
from worldprotocol.analysis.recheck.whole_log import RecheckSetup

__all__ = ["main"]

MAX_DIVERGENCES: Final = 1_000
"""Number of divergent steps after which a run stops."""

STRETCH: Final = 500

TWICE: Final = 0.5
"""Probability of an additional performance of a step when the order is varied."""


def _recheck(instructions: Mapping[str, Any], out: IO[str]) -> None:
    projections, policies = list(instructions["projections"]), list(instructions["policies"])
    chance = None if instructions["order"] is None else random.Random(instructions["order"])
    if chance is not None:
        chance.shuffle(projections)
        chance.shuffle(policies)
    setup = RecheckSetup(
        instructions["address"],
        instructions["domain"],
        tuple(projections),
        tuple(policies),
        Path(instructions["folder"]),
    )
    with setup.open() as world:
        size = world.log.head().size
        last = min(size, instructions["upto"] or size)
        checking = Rechecking(world, every=True, twice=None if chance is None else lambda: chance.random() < TWICE)
        found, position, steps = 0, 0, Counter[str]()
        while position < last and found < MAX_DIVERGENCES:
            done = checking.stretch((position, min(position + STRETCH, last)))
            position = done.position
            steps.update(done.steps)
            for one in done.divergences:
                found += not one.is_drift
                print(json.dumps({"drift": one.is_drift, "divergence": one.to_wire()}), file=out)
        print(json.dumps({"position": position, "steps": dict(sorted(steps.items()))}), file=out)


def main() -> None:
    """Run the recheck that stdin describes."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        instructions = json.load(sys.stdin.buffer)
        if instructions["locale"] is not None:
            locale.setlocale(locale.LC_ALL, instructions["locale"])
        try:
            _recheck(instructions, out)
        except WorldProtocolError as error:
            print(json.dumps({"error": error.to_dict()}, default=str), file=out)
