"""The actions that the conformance suite of the protocol calls: its names, as actions of a realm."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from worldprotocol import ActionContext, Approve, Domain, Escalate, Narrow, Policy, effect, external, rule, set_

LONG_S = 10
"""Computations of more seconds are asked of ann."""


class Suite(BaseModel):
    done: dict[str, str] = {}


class Greeting(BaseModel):
    name: str


class Computation(BaseModel):
    seconds: int
    label: str


suite = Domain("urn:test:suite", version="1.0.0", state=Suite)


@suite.action("greet", version="1")
def greet(ctx: ActionContext, input: Greeting) -> Any:  # noqa: A002
    return [set_("done.greet", f"Hello, {input.name}!")]


@suite.action("slow_compute", version="1")
def slow_compute(ctx: ActionContext, input: Computation) -> Any:  # noqa: A002
    if input.seconds:
        yield effect("suite.compute", label=input.label)
    return [set_(f"done.{input.label}", "computed")]


@suite.action("failing_job", version="1")
def failing_job(ctx: ActionContext) -> Any:
    yield effect("suite.compute", label="failing")
    ctx.fail("JOB_FAILED", "this job always fails")


@suite.action("test_simple_text", version="1")
def simple_text(ctx: ActionContext) -> Any:
    return [set_("done.test_simple_text", "text")]


@suite.action("test_error_handling", version="1")
def error_handling(ctx: ActionContext) -> Any:
    ctx.fail("INTENDED", "this action always fails")


@suite.action("test_logging_tool", version="1")
def logging_tool(ctx: ActionContext) -> Any:
    return [set_("done.test_logging_tool", "logged")]


@suite.action("test_streaming_elicitation", version="1")
def streaming_elicitation(ctx: ActionContext) -> Any:
    return [set_("done.test_streaming_elicitation", "streamed")]


handlers = [external("suite.compute", time_limit_ms=600_000)]


@rule
def people_decide(case: Any) -> Any:
    body = case.intent.body
    if body.type == "slow_compute" and body.input["seconds"] > LONG_S:
        return Escalate("ann", "a person decides")
    return Approve("it is harmless")


@rule
def each_writes_its_own(case: Any) -> Any:
    body = case.intent.body
    return Narrow(f"done.{body.input['label'] if body.type == 'slow_compute' else body.type}")


policy = Policy("suite", [people_decide, each_writes_its_own])
