"""What if, beside the same counterfactual made for real in a realm of its own: both come to the same, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.pipeline.counterfactual import HOUSE, OTHERS, History, Step, made, outcome_of, state_of
from tests.pipeline.shop import shop
from world.audit.verify import verify
from worldprotocol.analysis.counterfactual import Insertion, WhatIf, WhatIfReport, what_if
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

ACTORS = st.sampled_from(["ann", "bot", "kit", "kid"])
WHICH = st.integers(0, 5)
TEA = "STATE:/main/stock/tea"
STEPS = st.one_of(
    st.tuples(st.just("sell"), ACTORS, st.sampled_from(["tea", "cake"]), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("sparing"), ACTORS, st.sampled_from(["tea", "cake"])),
    st.tuples(st.just("close"), ACTORS),
    st.tuples(st.just("charge"), ACTORS, st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.just("fork"), ACTORS, WHICH),
    st.tuples(st.just("branch"), WHICH),
    st.tuples(st.just("switch"), st.integers(1, 3)),
    st.tuples(st.just("decide"), WHICH, st.sampled_from(["approve", "reject", "narrow"])),
    st.tuples(st.just("cancel"), WHICH),
    st.tuples(st.just("deliver"), WHICH, st.booleans()),
    st.tuples(st.just("lease"), ACTORS, st.sampled_from([TEA, "FILE:/till"]), st.integers(200, 3_000), st.booleans()),
    st.tuples(st.just("release"), WHICH),
    st.tuples(st.just("beat"), WHICH),
    st.tuples(st.just("withdraw"), WHICH),
    st.tuples(st.just("revoke"), WHICH),
    st.tuples(st.just("revoke_from"), WHICH),
    st.tuples(st.just("agent"), ACTORS, st.integers(1, 5_000)),
    st.tuples(st.just("bind"), st.sampled_from(["bot", "kit"]), st.sampled_from(["ann", "bot", "kid"])),
    st.tuples(st.just("wait")),
)
HISTORIES = st.lists(st.tuples(st.sampled_from([0, 0, 0, 300, 1_200]), STEPS), min_size=2, max_size=12)

FIRST_REQUEST: list[tuple[int, Step]] = [
    (0, ("close", "kit")),
    (300, ("charge", "ann", 2, 1)),
    (0, ("charge", "kit", 3, 1)),
]
"""The age of an agent comes of its first request."""

HELD_BEFORE: list[tuple[int, Step]] = [
    (0, ("lease", "kid", TEA, 3_000, False)),
    (0, ("lease", "kit", "FILE:/till", 3_000, False)),
    (0, ("sparing", "ann", "tea")),
    (0, ("lease", "bot", TEA, 3_000, True)),
    (0, ("release", 0)),
    (0, ("beat", 1)),
    (0, ("withdraw", 2)),
    (0, ("sparing", "bot", "tea")),
]
"""A lease from before the branch begins is given back after it."""

REVOKED: list[tuple[int, Step]] = [(0, ("charge", "ann", 2, 1)), (0, ("revoke_from", 0)), (0, ("deliver", 0, False))]
"""A proposal loses leases that it was granted in the branch."""

FORKED: list[tuple[int, Step]] = [
    (0, ("sell", "bot", "tea", 2, 0)),
    (0, ("sell", "kit", "tea", 1, 0)),
    (0, ("fork", "ann", 1)),
    (0, ("branch", 0)),
    (0, ("switch", 2)),
    (0, ("sell", "ann", "cake", 1, 0)),
]
"""Branches begin at a head, and at a world that is none any more."""

CAME_DUE: list[tuple[int, Step]] = [
    (0, ("lease", "ann", "FILE:/till", 200, True)),
    (0, ("fork", "kid", 0)),
    (300, ("cancel", 2)),
    (0, ("lease", "kid", TEA, 905, False)),
    (0, ("sparing", "ann", "cake")),
    (300, ("switch", 3)),
    (0, ("sparing", "kit", "tea")),
    (300, ("charge", "bot", 2, 2)),
    (1_200, ("fork", "kid", 0)),
    (0, ("sell", "bot", "tea", 2, 1)),
    (0, ("fork", "kit", 3)),
    (0, ("branch", 0)),
]
"""A branch begins at a world that came about in the same step, when a lease that kept it waiting had expired."""

ON_A_FORK: list[tuple[int, Step]] = [
    (0, ("branch", 0)),
    (0, ("sparing", "ann", "tea")),
    (0, ("fork", "ann", 0)),
    (0, ("switch", 1)),
    (0, ("sparing", "ann", "tea")),
]
"""A proposal names no branch, and the active one is a fork that is dropped: the record names the fork."""

WITH_OTHER_LEASES: list[tuple[int, Step]] = [
    (0, ("close", "ann")),
    (0, ("sparing", "ann", "cake")),
    (0, ("charge", "bot", 1, 1)),
    (0, ("sell", "ann", "tea", 1, 0)),
    (0, ("sell", "ann", "tea", 1, 0)),
    (0, ("revoke_from", 0)),
]
"""The leases of a proposal are revoked, which here has others, since its approved scope is another one."""


def compared(
    folder: Path, steps: list[tuple[int, Step]], start: int, asked: dict[str, Any], **otherwise: Any
) -> tuple[WhatIfReport, History, History]:
    """Make a history, ask what if, make the counterfactual for real, and compare the two."""
    then = made(folder / "record.db", steps)
    now = made(folder / "real.db", steps, then.record, **otherwise)
    begin = then.sizes[start - 1] if start else then.founded
    if "drop" in otherwise:
        asked = {"drop": [then.record.came[otherwise["drop"]].proposal_id]}
    scratch = folder / "scratch.db"
    try:
        report = what_if(WhatIf(str(folder / "record.db"), shop, begin, at_hand=[HOUSE], scratch=scratch, **asked))
        with Realm.open_read_only(scratch) as there:
            _compare(then, now, there, report)
        with open_for_reading(str(scratch)) as log:
            assert verify(log).ok
    finally:
        then.close()
        now.close()
    return report, then, now


def _compare(then: History, now: History, there: Realm, report: WhatIfReport) -> None:
    lines = {line["proposalId"]: line for line in report.proposals}
    needed = {line["proposalId"] for line in report.needed}
    for number, came in then.record.came.items():
        if came.proposal_id is None:
            continue
        here = now.record.came.get(number)
        real = outcome_of(now.world, None if here is None else here.proposal_id)
        known = {one for one in (came.proposal_id,) if there.log.stream(one)}
        told = outcome_of(there, came.proposal_id if known else None)
        assert told == real, number
        line = lines.get(came.proposal_id)
        before = outcome_of(then.world, came.proposal_id)
        parts = ("status", "decision", "approvedScope", "content")
        same = all(before.get(part) == real.get(part) for part in parts)
        assert (line is None) == same, (number, line, before, real)
        if line is not None and came.proposal_id in needed:
            assert line["to"]["status"] == "effectNeeded"
        elif line is not None and known:
            assert line["to"]["status"] == real["status"]
    assert state_of(there) == state_of(now.world)
    assert [outcome_of(there, one["proposalId"]) for one in report.inserted] == [
        outcome_of(now.world, one) for one in now.inserted
    ]


def submissions(then: History) -> list[int]:
    return [number for number, came in then.record.came.items() if came.proposal_id is not None]


@pytest.mark.requirement("CARD-replay", "CARD-audit")
@settings(max_examples=5)
@given(steps=HISTORIES, which=st.integers(0, 20), start=st.integers(0, 20))
@example(steps=FIRST_REQUEST, which=0, start=0)
@example(steps=FORKED, which=1, start=2)
@example(steps=CAME_DUE, which=5, start=4)
@example(steps=ON_A_FORK, which=1, start=0)
def test_a_proposal_left_out_is_as_if_nobody_had_submitted_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Step]], which: int, start: int
) -> None:
    folder = tmp_path_factory.mktemp("drop")
    first = made(folder / "first.db", steps)
    numbers = submissions(first)
    first.close()
    if numbers:
        dropped = numbers[which % len(numbers)]
        compared(folder, steps, start % (dropped + 1), {}, drop=dropped)


@pytest.mark.requirement("CARD-replay", "CARD-audit", "CARD-policy")
@settings(max_examples=5)
@given(steps=HISTORIES, start=st.integers(0, 20), name=st.sampled_from(sorted(OTHERS)))
@example(steps=HELD_BEFORE, start=1, name="lax")
@example(steps=REVOKED, start=0, name="lax")
@example(steps=FORKED, start=0, name="asking")
def test_another_policy_is_as_if_it_had_been_adopted(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Step]], start: int, name: str
) -> None:
    at = start % len(steps)
    policy = OTHERS[name]
    compared(tmp_path_factory.mktemp("policy"), steps, at, {"policies": [policy]}, policy=(at, policy))


@pytest.mark.requirement("CARD-replay", "CARD-audit")
@settings(max_examples=5)
@given(steps=HISTORIES, start=st.integers(0, 20), at=st.integers(0, 20), actor=ACTORS, step=st.integers(0, 2))
@example(steps=WITH_OTHER_LEASES, start=0, at=0, actor="ann", step=0)
def test_an_inserted_intent_is_as_if_somebody_had_submitted_it(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Step]], start: int, at: int, actor: str, step: int
) -> None:
    number = at % len(steps)
    begin = start % (number + 1)
    times = 1_000
    for wait_ms, _ in steps[:number]:
        times += 10 + wait_ms
    bodies: list[dict[str, Any]] = [
        {"type": "sell", "input": {"item": "tea", "count": 4}},
        {"type": "close"},
        {"type": "charge", "input": {"amount": 1}},
    ]
    body = bodies[step]
    more = Insertion(actor, body, at=times + 5 + steps[number][0])
    insert = number, (actor, body["type"], body.get("input"), None)
    compared(tmp_path_factory.mktemp("insert"), steps, begin, {"insert": [more]}, insert=insert)
