"""Judgements per second: the same rules in CEL, in Python, and called bare.

Usage: ``python -m bench judging [--cases N] [--members N]``. One policy of four rules that read the input, the actor,
the state and the past, judged for many different cases by one core. What counts is ``judge()`` alone: the whole way
from a case to a ruling with its trace, without making the case and without the log; seconds are those that the core
spent on it. To reach: 20,000 per second for CEL and for Python.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from authority import PolicyRegistry, StandardAuthority
from authority.people.answers import QuestionSettings
from authority.policies.policy_file import policy_from_text
from bench.judged import FILE, bare, house
from world.code.time_limit import TimeLimit
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin
from world.model.snapshot import SnapshotView
from world.model.source import SourceRef
from world.state.ports import Case

TO_REACH = 20_000
ROUNDS = 3


@dataclass(frozen=True)
class Past:
    """A past that costs nothing to ask."""

    def count(self, **conditions: Any) -> int:
        """Return the same always."""
        return 7

    def sum(self, path: str, **conditions: Any) -> int:
        """Return the same always."""
        return 7


def cases(count: int, members: int, policy: str) -> list[Case]:
    """Return different cases over one state that holds so many members."""
    paid = {f"member-{at}": at for at in range(members)}
    view = SnapshotView(freeze({"balance": 1_000, "paid": paid}), FrozenDict())
    actor = ActorRef(actor_id="bot", kind="agent", meta={"team": "blue"})
    origin = IntentOrigin(projection_id="bench", source=SourceRef(kind="agent", event_id="e"), actor=actor)
    binding = FrozenDict({"kind": "policy_rules", "policy": policy})
    made = []
    for at in range(count):
        body = IntentBody(type="pay", input={"to": f"member-{at}", "amount": at % 21})
        intent = IntentInstance(body=body, intent_id=f"i-{at}", intent_key=f"k-{at}", meta=IntentMeta(origin=origin))
        made.append(
            Case(
                f"p-{at}",
                intent,
                actor,
                binding,
                FrozenDict(),
                "w",
                view,
                "s",
                "main",
                1_700_000_000_000 + at,
                0,
                Past(),
            )
        )
    return made


def rate(judge: Callable[[Case], object], given: Sequence[Case]) -> float:
    """Return how many cases are judged in a second of the core's time, in the best of some rounds."""
    best = 0.0
    for _ in range(ROUNDS):
        begin = time.process_time()
        for case in given:
            judge(case)
        best = max(best, len(given) / (time.process_time() - begin))
    return best


def guard_us(given: Sequence[Case]) -> float:
    """Return what the guard adds to a ruling of rules in Python, in microseconds of the core's time."""
    settings = QuestionSettings(("*",), 60_000, "reject")
    free = house.hashed_like({"identity": "rules-1"})  # as policies of earlier adoptions are judged
    guarded, unguarded = (rate(partial(one.evaluate, settings=settings), given) for one in (house, free))
    return (1 / guarded - 1 / unguarded) * 1e6


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000, help="cases in each round")
    parser.add_argument("--members", type=int, default=10_000, help="how much the state holds")
    told = parser.parse_args()
    authority = StandardAuthority(
        PolicyRegistry([house, policy_from_text(FILE, "rules.toml")]), time_limit=TimeLimit(10_000)
    )
    of_code, of_file = (cases(told.cases, told.members, name) for name in ("code", "file"))
    first = [authority.judge(one[0]) for one in (of_code, of_file)]
    assert (first[0].verdict, first[0].approved_scope) == (first[1].verdict, first[1].approved_scope)
    alone = rate(bare, of_code)
    print(f"{'rule functions, bare':<28} {alone:>10,.0f} /s")
    print(f"{'the guard of a ruling':<28} {guard_us(of_code):>10.1f} us")
    for name, given in (("judge(), rules in Python", of_code), ("judge(), rules in CEL", of_file)):
        reached = rate(authority.judge, given)
        print(f"{name:<28} {reached:>10,.0f} /s   ratio {reached / alone:5.2f}   to reach {TO_REACH:,} /s")


if __name__ == "__main__":
    main()
