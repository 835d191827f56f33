"""An execution that is kept from effect to effect comes to what running it again from its start comes to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from world.core import (
    ActionContext,
    ComputeContext,
    Domain,
    EffectAnswer,
    EffectFailedError,
    Invocation,
    compute,
    effect,
    genesis,
    set_,
)
from world.core.flows.suspended_execution import LiveExecution
from world.model.snapshot import ErrorValue

CONTEXT = ComputeContext(now=1_700_000_000_000, random_seed="seed")


class State(BaseModel):
    log: list[Any] = []
    total: int = 0


class Plan(BaseModel):
    steps: list[Any]


steps_run = 0


def domain() -> Domain:
    built = Domain("urn:test:live", version="1.0.0", state=State)

    @built.action("plan", version="1")
    def plan(ctx: ActionContext, wanted: Plan) -> Any:
        global steps_run  # noqa: PLW0603 - counts what is run, for the tests
        total = 0
        for number, step in enumerate(wanted.steps):
            steps_run += 1
            if step == "patch":
                yield set_("total", ctx.data["total"] + 1)
            elif step == "fail":
                ctx.fail("STOPPED", "The plan says so.")
            elif step == "boom":
                raise ValueError(step)
            else:
                try:
                    total += yield effect(step, number=number, seen=ctx.data["total"], chance=ctx.random())
                except EffectFailedError as failed:
                    yield [set_("log", [*ctx.data["log"], str(failed)])]
        return [set_("log", [*ctx.data["log"], total, ctx.new_id()])]

    built.flow(
        "flow",
        {
            "kind": "seq",
            "steps": [
                {"kind": "effect", "type": "ask", "params": {"n": {"kind": "lit", "value": number}}}
                for number in range(12)
            ],
        },
    )
    return built


BUILT = domain()
BASE = genesis(BUILT, CONTEXT)


def result_of(number: int) -> EffectAnswer:
    if number % 5 == 4:
        return EffectAnswer(error=ErrorValue.at("DOWN", "come back", "", "", 0))
    return EffectAnswer(value=number)


def driven(invocation: Invocation, restart_after: set[int]) -> Any:
    """Drive a kept execution, forgetting it after some of its effects, and compare every step with a run from the
    start.
    """
    journal: dict[str, EffectAnswer] = {}
    live = LiveExecution(BUILT, BASE, invocation, CONTEXT)
    while True:
        done = live.compute(dict(journal))
        assert done == compute(BUILT, BASE, invocation, CONTEXT, dict(journal))
        if done.status != "pending":
            assert not live.waits
            return done
        journal[done.requirements[0].id] = result_of(len(journal))
        if len(journal) in restart_after:
            live.close()
            live = LiveExecution(BUILT, BASE, invocation, CONTEXT)


@pytest.mark.requirement("IC-effects", "IC-reentry", "HC-compute")
@given(
    st.lists(st.sampled_from(["ask", "tell", "ask", "patch", "ask"]), max_size=14),
    st.sampled_from([None, "fail", "boom"]),
    st.sets(st.integers(1, 14)),
)
def test_a_kept_execution_gives_at_every_step_what_a_run_from_the_start_gives(
    steps: list[str], end: str | None, restart_after: set[int]
) -> None:
    plan = [*steps, end] if end else steps
    invocation = Invocation("plan", {"steps": plan}, "intent-1")
    assert driven(invocation, restart_after) == driven(invocation, set())


@pytest.mark.requirement("IC-effects", "IC-reentry")
@given(st.sets(st.integers(1, 12)))
def test_a_kept_flow_gives_at_every_step_what_a_run_from_the_start_gives(restart_after: set[int]) -> None:
    invocation = Invocation("flow", None, "intent-1")
    assert driven(invocation, restart_after) == driven(invocation, set())


def steps_of(effects: int) -> int:
    global steps_run  # noqa: PLW0603
    steps_run = 0
    invocation = Invocation("plan", {"steps": ["ask"] * effects}, "intent-1")
    journal: dict[str, EffectAnswer] = {}
    live = LiveExecution(BUILT, BASE, invocation, CONTEXT)
    while (done := live.compute(journal)).status == "pending":
        journal = {**journal, done.requirements[0].id: EffectAnswer(value=1)}
    assert done.snapshot.data["log"][0] == effects
    return steps_run


def test_the_steps_of_an_action_grow_with_its_effects_and_not_with_their_square() -> None:
    assert steps_of(20) <= 5 * 20
    assert steps_of(200) <= 5 * 200


@pytest.mark.requirement("IC-effects", "IC-reentry", "HC-compute")
def test_a_journal_that_says_something_else_than_before_is_computed_from_the_start() -> None:
    invocation = Invocation("plan", {"steps": ["ask"] * 7}, "intent-1")
    live = LiveExecution(BUILT, BASE, invocation, CONTEXT)
    journal: dict[str, EffectAnswer] = {}
    for number in range(5):
        journal[live.compute(journal).requirements[0].id] = EffectAnswer(value=number)
    for other in (
        {},
        dict(list(journal.items())[:2]),
        {name: EffectAnswer(value=100) for name in journal},
        {**journal, "more": EffectAnswer(value=1)},
        journal,
    ):
        assert live.compute(other) == compute(BUILT, BASE, invocation, CONTEXT, other)


@pytest.mark.requirement("HC-compute")
@pytest.mark.parametrize("given_input", [float("nan"), {"steps": [object()]}, {1: 2}, "\ud800", 5, None])
def test_an_input_that_is_no_json_or_does_not_fit_ends_a_kept_execution_as_it_ends_any_other(given_input: Any) -> None:
    invocation = Invocation("plan", given_input, "intent-1")
    done = LiveExecution(BUILT, BASE, invocation, CONTEXT).compute({})
    assert done.error is not None
    assert done == compute(BUILT, BASE, invocation, CONTEXT)


@pytest.mark.requirement("IC-reqid", "IC-reentry")
def test_effects_that_python_takes_for_equal_are_told_apart_when_an_action_is_run_again() -> None:
    built = Domain("urn:test:equal", version="1.0.0", state=State)
    given_now: list[Any] = [1]

    @built.action("ask", version="1")
    def ask(ctx: ActionContext) -> Any:
        yield effect("ask", what=given_now[0])
        yield effect("tell")
        return []

    invocation, base = Invocation("ask", None, "intent-1"), genesis(built, CONTEXT)
    live = LiveExecution(built, base, invocation, CONTEXT)
    first = live.compute({}).requirements[0].id
    given_now[0] = True
    again = live.compute({first: EffectAnswer(value=1)})
    assert [one.type for one in again.requirements] == ["ask"]
    assert again.requirements[0].id != first
