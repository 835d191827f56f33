"""One run of a varied recheck, as a process of its own: told what to do by JSON on stdin, see ``varying``.

``varying`` starts it with the path that modules are imported from, which it sets before it imports this module.

It says one line of JSON for each divergence, and how far it came in the last one. What the code at hand prints goes
to stderr.
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
"""After so many steps that came out differently a run looks no further."""

STRETCH: Final = 500

TWICE: Final = 0.5
"""The chance that a step is performed once more before it counts, where the order of things is varied."""


def _recheck(told: Mapping[str, Any], out: IO[str]) -> None:
    projections, policies = list(told["projections"]), list(told["policies"])
    chance = None if told["order"] is None else random.Random(told["order"])
    if chance is not None:
        chance.shuffle(projections)
        chance.shuffle(policies)
    setup = RecheckSetup(told["address"], told["domain"], tuple(projections), tuple(policies), Path(told["folder"]))
    with setup.open() as world:
        size = world.log.head().size
        last = min(size, told["upto"] or size)
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
    """Do what stdin says."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        told = json.load(sys.stdin.buffer)
        if told["locale"] is not None:
            locale.setlocale(locale.LC_ALL, told["locale"])
        try:
            _recheck(told, out)
        except WorldProtocolError as error:
            print(json.dumps({"error": error.to_dict()}, default=str), file=out)
