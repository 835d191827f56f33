"""The realm that the tests of the pages serve: services of a fleet, whose changes a policy lets people review."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from worldprotocol import Approve, Domain, Escalate, Narrow, Policy, Reject, effect, external, rule, set_, unset

REPLICAS = 6
"""Replicas from which on a person reviews a deployment."""


class Service(BaseModel):
    image: str
    replicas: int
    region: str


class Fleet(BaseModel):
    services: dict[str, Service] = {}
    notices: dict[str, str] = {}
    refunds: dict[str, int] = {}


class Deployment(BaseModel):
    service: str
    image: str
    replicas: int = 2
    region: str = "eu-west"
    notice: str = ""


class Retirement(BaseModel):
    service: str


class Refund(BaseModel):
    order: str
    cents: int


fleet = Domain("urn:test:fleet", version="1.0.0", state=Fleet)


@fleet.action("service.deploy", version="1")
def deploy(ctx: Any, input: Deployment) -> Any:  # noqa: A002
    """Set image, replicas and region of a service, and the notice for its users."""
    service = {"image": input.image, "replicas": input.replicas, "region": input.region}
    notice = [set_(f"notices.{input.service}", input.notice)] if input.notice else []
    return [set_(f"services.{input.service}", service), *notice]


@fleet.action("service.retire", version="1")
def retire(ctx: Any, input: Retirement) -> Any:  # noqa: A002
    """Remove a service and its notice."""
    return [unset(f"services.{input.service}"), unset(f"notices.{input.service}")]


@fleet.action("refund.pay", version="1")
def refund(ctx: Any, input: Refund) -> Any:  # noqa: A002
    """Pay money back, and note how much."""
    paid = yield effect("bank.pay", order=input.order, cents=input.cents)
    return [set_(f"refunds.{input.order}", paid["cents"])]


@rule
def small_deployments_pass(case: Any) -> Any:
    """A deployment with few replicas needs no review."""
    given = case.intent.body.input
    if case.intent.body.type == "service.deploy" and given["replicas"] < REPLICAS:
        return Approve(f"{given['replicas']} replicas, fewer than {REPLICAS}")
    return None


@rule
def large_deployments_are_reviewed(case: Any) -> Any:
    given = case.intent.body.input
    if case.intent.body.type == "service.deploy" and given["replicas"] >= REPLICAS:
        return Escalate(("ann", "bob"), f"{given['service']} gets {given['replicas']} replicas, {REPLICAS} or more")
    return None


@rule
def retirements_need_two_people(case: Any) -> Any:
    if case.intent.body.type == "service.retire":
        return Escalate(("ann", "bob", "eve"), "a retired service cannot be restored from here", vote="majority")
    return None


@rule
def refunds_are_reviewed(case: Any) -> Any:
    if case.intent.body.type == "refund.pay":
        return Escalate(("ann",), f"money leaves the company: {case.intent.body.input['cents'] / 100:.2f}")
    return None


@rule
def agents_change_services_only(case: Any) -> Any:
    if case.actor.kind == "agent" and case.intent.body.type != "refund.pay":
        return Narrow(["services.*", "services.*.*", "notices.*"], "agents change services and notices, nothing else")
    return None


@rule
def nothing_is_deployed_to_the_moon(case: Any) -> Any:
    if case.intent.body.type == "service.deploy" and case.intent.body.input.get("region") == "moon":
        return Reject("there is no region moon")
    return None


house = Policy(
    "house",
    [
        small_deployments_pass,
        large_deployments_are_reviewed,
        retirements_need_two_people,
        refunds_are_reviewed,
        agents_change_services_only,
        nothing_is_deployed_to_the_moon,
    ],
)
handlers = [external("bank.pay", time_limit_ms=1_000)]
