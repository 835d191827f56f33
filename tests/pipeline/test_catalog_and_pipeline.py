"""What a catalog says binds nobody: the Authority judges, and the core decides, whatever was offered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from authority import Approve, Policy, rule
from tests.pipeline.shop import open_shop
from world.clock import ManualClock, SequentialIds
from world.core import AvailabilityContext, Domain, effect, set_
from world.errors import RefusedError
from world.events.proposal_events import ProposalJudged
from worldprotocol import Realm, handler
from worldprotocol.api.actions import Actions


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


class Gate(BaseModel):
    shut: bool = False
    keys: int = 1
    passed: int = 0
    note: str | None = None


def gate() -> Domain:
    domain = Domain("urn:test:gate", version="1.0.0", state=Gate)

    @domain.computed("locked", deps=["shut", "keys"])
    def locked(data: Any) -> bool:
        return bool(data["shut"] and not data["keys"])

    domain.computed("busy", expr={"kind": "gt", "left": get("passed"), "right": {"kind": "lit", "value": 2}})

    @domain.action("pass", version="1", available={"kind": "not", "arg": get("shut")}, description="Go through.")
    def go(ctx: Any) -> Any:
        return [set_("passed", ctx.data["passed"] + 1)]

    @domain.action("shut", version="1")
    def shut(ctx: Any) -> Any:
        return [set_("shut", True)]

    @domain.action("peek", version="1", available=get("keys"))
    def peek(ctx: Any) -> Any:
        return []

    @domain.action(
        "knock", version="1", available={"kind": "gt", "left": get("keys"), "right": {"kind": "lit", "value": 0}}
    )
    def knock(ctx: Any) -> Any:
        yield effect("bell.ring")
        return [set_("keys", 0)]

    @domain.action("read", version="1", available=get("note"))
    def read(ctx: Any) -> Any:
        return []

    @domain.action("wait", version="1", available={"kind": "not", "arg": get("computed.locked")})
    def wait(ctx: Any) -> Any:
        return []

    @domain.action("count", version="1")
    def count(ctx: Any) -> Any:
        return []

    @domain.available("count")
    def may_count(ctx: AvailabilityContext) -> bool:
        return bool(ctx.data["passed"] > 0)

    return domain


@rule
def everybody_may(case: Any) -> Any:
    return Approve("why not")


@handler("bell.ring", idempotent=True)
def bell(params: Any, call: Any) -> Any:
    return {"rung": True}


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    parts: dict[str, Any] = {"policies": [Policy("open", [everybody_may])], "effects": [bell]}
    with Realm.create(log_url, domain=gate(), clock=ManualClock(1_000, 1), ids=SequentialIds(), **parts) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        opened.register("bot", "agent", binding={"kind": "policy_rules", "policy": "open"}, meta={"role": "porter"})
        yield opened


def statuses(world: Realm, actor: str | None = "bot", **wishes: Any) -> dict[str, str]:
    pruning = {"policy": "mark_only"}
    catalog = world.actions.catalog(actor, pruning=pruning, **wishes)
    return {one.type: one.availability.reason or one.availability.status for one in catalog.actions}


def offered(world: Realm, actor: str | None = "bot") -> list[str]:
    return [one.type for one in world.actions.catalog(actor).actions]


@pytest.mark.requirement("INV-AC3", "INT-7.4.5", "IC-available", "INT-3.4b")
@pytest.mark.parametrize("name", ["pass", "count"])
def test_an_action_that_was_pruned_is_judged_all_the_same_and_refused_by_the_core(world: Realm, name: str) -> None:
    world.act("ann", "shut")
    assert name not in offered(world)
    done = world.act("bot", name)
    judged = [event for _, event in world.events() if isinstance(event, ProposalJudged)]
    assert judged[-1].proposal_id == done.proposal_id
    assert (done.status, done.error.code if done.error else None) == ("failed", "ACTION_UNAVAILABLE")
    assert world.data()["passed"] == 0


@pytest.mark.requirement("INT-7.4.5", "INV-AC5")
def test_an_unknown_action_is_decided_by_the_core_when_it_is_invoked(world: Realm) -> None:
    assert statuses(world)["peek"] == "indeterminate"  # one key is neither true nor false
    assert statuses(world)["read"] == "missing_context"
    assert {"peek", "read"} <= set(offered(world))
    for action in ("peek", "read"):
        done = world.act("bot", action)
        assert done.decision is not None
        assert (done.decision.decision, done.status) == ("approved", "failed")
        assert done.error is not None
        assert done.error.code == "ACTION_UNAVAILABLE"
        assert "neither true nor false" in done.error.message


@pytest.mark.requirement("IC-available")
def test_availability_that_an_executions_own_effect_ended_does_not_end_it(world: Realm) -> None:
    assert world.act("bot", "knock").status == "completed"
    assert world.data()["keys"] == 0


@pytest.mark.requirement("INT-7.4.1", "INT-7.4.2a")
def test_a_catalog_shows_the_state_that_is_looked_at(world: Realm) -> None:
    before = world.branch().head
    world.act("ann", "pass")
    world.act("ann", "shut")
    assert statuses(world)["pass"] == "unavailable"
    assert statuses(world, at=before)["pass"] == "available"
    world.create_branch("early", before)
    assert statuses(world, branch="early") == statuses(world, at=before)
    assert statuses(world)["count"] == "available"
    assert statuses(world, branch="early")["count"] == "unavailable"


def test_a_catalog_is_the_same_for_who_looks_only_as_far_as_no_python_code_is_needed(tmp_path: Path) -> None:
    address = str(tmp_path / "gate.db")
    with Realm.create(address, domain=gate()) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        mine = statuses(world, "ann")
    with Realm.open_read_only(address) as looking:
        theirs = statuses(looking, "ann")
        catalog = looking.actions.catalog("ann")
        helped = Actions(looking.archive, gate()).catalog("ann")
    assert theirs == {**mine, "wait": "missing_context", "count": "indeterminate"}
    assert {one.description for one in catalog.actions} == {"Go through.", None}
    with Realm.open(address, domain=gate()) as world:
        assert world.actions.catalog("ann") == helped


def test_a_function_that_is_not_at_hand_leaves_its_action_unknown(tmp_path: Path) -> None:
    domain = gate()

    @domain.available("shut")
    def has_keys(ctx: AvailabilityContext) -> bool:
        return bool(ctx.data["keys"])

    address = str(tmp_path / "gate.db")
    with Realm.create(address, domain=domain) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        assert statuses(world, "ann")["shut"] == "available"
    with Realm.open_read_only(address) as looking:
        assert statuses(looking, "ann")["shut"] == "indeterminate"
        (told,) = [one for one in looking.actions.explain("ann")[1] if one.type == "shut"]
    assert told.offered
    assert "not available in this process" in told.why


def test_a_world_of_an_earlier_schema_is_looked_at_under_its_own(tmp_path: Path) -> None:
    address = str(tmp_path / "gate.db")
    with Realm.create(address, domain=gate()) as world:
        genesis = world.branch().head
    later = gate()
    later.action("new", version="1")(lambda ctx: [])
    with Realm.open_to_adopt(address, domain=later) as world:
        assert "new" in offered(world, None)
        assert world.actions.catalog().schema_hash == later.schema.hash
        past = world.actions.catalog(at=genesis)
        assert past.schema_hash != later.schema.hash
        assert "new" not in [one.type for one in past.actions]


def test_what_is_asked_of_nobody_nowhere_or_nonsense_is_refused(world: Realm) -> None:
    wishes: list[tuple[str, dict[str, Any]]] = [
        ("UNKNOWN_ACTOR", {"actor_id": "nobody"}),
        ("UNKNOWN_BRANCH", {"branch": "nowhere"}),
        ("UNKNOWN_WORLD", {"at": "0" * 64}),
        ("INVALID_VALUE", {"pruning": {"maxActions": -1}}),
        ("INVALID_VALUE", {"mode": "all"}),
    ]
    for code, wish in wishes:
        with pytest.raises(RefusedError) as caught:
            world.actions.catalog(**wish)
        assert caught.value.code == code


def test_a_models_call_of_a_tool_becomes_a_proposal(log_url: str) -> None:
    with open_shop(log_url) as shop:
        found = shop.actions.tools("ann")
        assert list(found.tools) == ["charge", "close", "sell"]
        body = found.body("sell", {"item": "tea", "count": 2})
        assert shop.act("ann", body.type, body.input).status == "completed"
        assert shop.data()["stock"]["tea"] == 8


def test_predicates_declared_later_are_seen(world: Realm) -> None:
    domain = world.parts.domain if world.parts else gate()
    assert statuses(world)["shut"] == "available"
    domain.available("shut")(lambda ctx: False)
    assert statuses(world)["shut"] == "unavailable"


@pytest.mark.requirement("IC-available", "INT-7.4.2a", "INT-7.4.5", "INV-AC5")
def test_the_core_knows_the_actor_when_it_decides(log_url: str) -> None:
    domain = Domain("urn:test:vault", version="1.0.0", state=Gate)
    role = {"kind": "eq", "left": get("meta.actor.meta.role"), "right": {"kind": "lit", "value": "keeper"}}
    domain.action("open", version="1", available=role)(lambda ctx: [set_("passed", 1)])
    domain.action("look", version="1")(lambda ctx: [])
    domain.available("look")(lambda ctx: ctx.actor.kind == "human")
    with Realm.create(log_url, domain=domain, clock=ManualClock(1_000, 1), ids=SequentialIds()) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"}, meta={"role": "keeper"})
        world.register("bob", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "auto_approve"}, meta={"role": "guest"})
        assert {name: statuses(world, name)["open"] for name in ("ann", "bob", "bot")} == {
            "ann": "available", "bob": "missing_context", "bot": "unavailable",
        }  # fmt: skip
        assert {name: world.act(name, "open").status for name in ("ann", "bob", "bot")} == {
            "ann": "completed", "bob": "failed", "bot": "failed",
        }  # fmt: skip
        assert [world.act(name, "look").status for name in ("ann", "bot")] == ["completed", "failed"]
