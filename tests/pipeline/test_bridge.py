"""The bridge: views out, intents in, and nobody who listens gets in anybody's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from projections.catalog import CatalogProjector
from tests.pipeline.shop import open_shop
from tests.support.patience import PATIENCE_S
from world.core import Domain
from world.errors import RefusedError
from world.model.intent import IntentBody
from world.model.patch import Patch
from world.model.paths import format_path
from world.model.snapshot import SnapshotView
from worldprotocol import Realm
from worldprotocol.api.bridge import Bridge

SELL = {"type": "sell", "input": {"item": "tea"}}


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    with open_shop(log_url) as opened:
        yield opened


@pytest.fixture
def bridge(world: Realm) -> Iterator[Bridge]:
    with Bridge(world, "ann", CatalogProjector()) as opened:
        yield opened


def sold(view: SnapshotView) -> int:
    return int(view.data["sold"])


@pytest.mark.requirement("INT-15.1", "INT-7.4.4c")
def test_a_dispatch_issues_and_submits(world: Realm, bridge: Bridge) -> None:
    done = bridge.dispatch(SELL, note="by hand")
    assert done.status == "completed"
    assert done.intent.intent_id
    assert done.intent.intent_key == done.intent.body.key(world.realm().schema_hash)
    assert done.intent.meta.origin.actor.actor_id == "ann"
    assert done.intent.meta.origin.note == "by hand"
    again = bridge.dispatch(IntentBody.read(SELL))
    assert again.intent.intent_id != done.intent.intent_id
    assert again.intent.intent_key == done.intent.intent_key


@pytest.mark.requirement("INT-15.1")
def test_a_scope_that_a_body_proposes_is_proposed(bridge: Bridge) -> None:
    done = bridge.dispatch({**SELL, "scopeProposal": {"allowedPaths": ["stock.*", "sold"]}})
    assert done.status == "completed"
    assert done.intent.body.scope_proposal is not None
    assert done.decision is not None
    assert done.decision.approved_scope == done.intent.body.scope_proposal


@pytest.mark.requirement("INT-15.1")
def test_a_dispatch_that_is_no_intent_is_refused(bridge: Bridge) -> None:
    for wrong in ({"input": 1}, {"type": "", "input": 1}, {"type": "sell", "actor": "eve"}):
        with pytest.raises(RefusedError):
            bridge.dispatch(wrong)


@pytest.mark.requirement("INT-15.1")
def test_what_stands_at_a_path_is_read(bridge: Bridge) -> None:
    assert bridge.get("stock.tea") == bridge.get("data.stock.tea") == 10
    assert bridge.get("computed.left") == 13
    assert bridge.get("stock.salt") is None
    assert bridge.get("receipts.0") is None
    assert bridge.get("data") == bridge.view().data
    for elsewhere in ("", "meta.timestamp", "system.status", "input", "$host.jobs", 5, None, ("stock", "tea")):
        with pytest.raises(RefusedError) as caught:
            bridge.get(elsewhere)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_PATH"


class Form(BaseModel):
    data: str = "mine"
    name: str = ""


class Field(BaseModel):
    path: str
    value: Any = None


def form() -> Domain:
    domain = Domain("urn:test:form", version="1.0.0", state=Form)

    @domain.action("field.set", version="1")
    def set_field(ctx: Any, field: Field) -> list[Patch]:
        return [Patch("set", format_path(tuple(field.path.split("."))), field.value)]

    return domain


@pytest.mark.requirement("INT-15.1")
def test_setting_a_place_dispatches_field_set(log_url: str) -> None:
    with Realm.create(log_url, domain=form()) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        bridge = Bridge(world, "ann")
        done = bridge.set("name", "Ann")
        assert done.intent.body.to_wire() == {"type": "field.set", "input": {"path": "name", "value": "Ann"}}
        assert (bridge.get("name"), bridge.get("data")) == ("Ann", "mine")


@pytest.mark.requirement("INT-15.1")
def test_a_schema_without_field_set_refuses_to_set(bridge: Bridge) -> None:
    with pytest.raises(RefusedError) as caught:
        bridge.set("sold", 1)
    assert caught.value.code == "UNKNOWN_ACTION"


# --- listening ---------------------------------------------------------------------------------------


@pytest.mark.requirement("INT-15.1", "WP-events")
def test_a_subscriber_is_told_every_new_view_in_order_until_it_leaves(world: Realm, bridge: Bridge) -> None:
    views: list[SnapshotView] = []
    unsubscribe = bridge.subscribe(views.append)
    bridge.dispatch(SELL)
    world.act("cron", "sell", {"item": "tea", "count": 2})
    world.act("ann", "sell", {"item": "salt"})  # it fails, so the head stays
    assert [sold(view) for view in views] == [1, 3]
    assert views[-1].computed["computed.left"] == 10
    with pytest.raises(TypeError):
        views[-1].data["sold"] = 7
    unsubscribe()
    unsubscribe()
    bridge.dispatch(SELL)
    assert len(views) == 2


@pytest.mark.requirement("WP-events")
def test_a_subscriber_that_raises_disturbs_nobody(
    bridge: Bridge, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        logging.getLogger("world.engine.event_bus"), "disabled", False
    )  # import-linter switches loggers off
    views: list[SnapshotView] = []

    def broken(view: SnapshotView) -> None:
        raise ZeroDivisionError

    bridge.subscribe(broken)
    bridge.subscribe(views.append)
    with caplog.at_level(logging.ERROR):
        assert bridge.dispatch(SELL).status == "completed"
    assert len(views) == 1
    assert "a subscriber failed" in caplog.text


@pytest.mark.requirement("WP-events", "INT-15.1")
def test_a_subscriber_cannot_act_from_within_and_may_schedule_it(bridge: Bridge) -> None:
    told: list[Any] = []

    def react(view: SnapshotView) -> None:
        told.append(sold(view))
        if sold(view) < 3:
            with pytest.raises(RefusedError) as caught:
                bridge.dispatch(SELL)
            told.append(caught.value.code)
            bridge.schedule(lambda: told.append(bridge.dispatch(SELL).status))
            told.append(bridge.get("sold"))

    bridge.subscribe(react)
    bridge.dispatch(SELL)
    assert told == [1, "CALL_FROM_HANDLER", 1, 2, "CALL_FROM_HANDLER", 2, "completed", 3, "completed"]
    assert bridge.get("sold") == 3


def test_what_is_scheduled_while_nobody_is_told_is_done_at_once(bridge: Bridge) -> None:
    done: list[int] = []
    bridge.schedule(lambda: done.append(1))
    assert done == [1]


@pytest.mark.requirement("INT-15.1")
def test_a_bridge_holds_to_its_branch(world: Realm, bridge: Bridge) -> None:
    world.create_branch("side")
    with Bridge(world, "ann", branch="side") as side:
        main_views: list[int] = []
        side_views: list[int] = []
        bridge.subscribe(lambda view: main_views.append(sold(view)))
        side.subscribe(lambda view: side_views.append(sold(view)))
        side.dispatch(SELL)
        assert (main_views, side_views, side.get("sold"), bridge.get("sold")) == ([], [1], 1, 0)
        world.switch_branch("side")  # a bridge without a branch of its own goes along
        assert (main_views, side_views, bridge.get("sold")) == ([1], [1], 1)
        bridge.dispatch(SELL)
        assert (main_views, side_views) == ([1, 2], [1, 2])
    bridge.dispatch(SELL)
    assert (main_views, side_views) == ([1, 2, 3], [1, 2])


def test_a_bridge_of_nobody_or_to_nowhere_is_refused(world: Realm) -> None:
    with pytest.raises(RefusedError, match="nobody"):
        Bridge(world, "nobody")
    with pytest.raises(RefusedError, match="nowhere"):
        Bridge(world, "ann", branch="nowhere")


# --- catalogs ----------------------------------------------------------------------------------------


@pytest.mark.requirement("INT-15.1", "INT-7.4.1")
def test_a_bridge_projects_the_catalog_of_its_actor_and_branch(world: Realm, bridge: Bridge) -> None:
    assert bridge.project_action_catalog() == world.actions.catalog("ann")
    bridge.dispatch({"type": "close"})
    assert [one.type for one in bridge.project_action_catalog().actions] == ["charge", "close"]
    marked = bridge.project_action_catalog(mode="debug", pruning={"policy": "mark_only"})
    assert marked.actions[-1].availability.to_wire() == {
        "status": "unavailable",
        "reason": "the predicate is false (open is false)",
    }
    for wrong in ("x", 5, ["policy"], {"policy": "x"}):
        with pytest.raises(RefusedError, match="Pruning") as caught:
            bridge.project_action_catalog(pruning=wrong)  # type: ignore[arg-type]
        assert caught.value.code == "INVALID_VALUE"
    own = world.actions.request("bot", mode="ui")
    assert bridge.project_action_catalog(own) == world.actions.catalog("bot", mode="ui")


class Broken:
    def project_action_catalog(self, req: Any) -> Any:
        raise ZeroDivisionError


@pytest.mark.requirement("INT-15.5")
@pytest.mark.parametrize("projector", [None, Broken()])
def test_without_a_projector_that_works_all_actions_of_the_schema_are_available(world: Realm, projector: Any) -> None:
    world.act("ann", "close")
    bridge = Bridge(world, "ann", projector)
    catalog = bridge.project_action_catalog()
    assert {one.type: one.availability.status for one in catalog.actions} == dict.fromkeys(
        ["charge", "close", "sell"], "available"
    )
    assert all(one.input_schema for one in catalog.actions if one.type != "close")
    assert bridge.dispatch(SELL).status == "failed"  # offered or not, the core decides


# --- asyncio -----------------------------------------------------------------------------------------


@pytest.mark.requirement("INT-15.1", "WP-events")
def test_in_asyncio_views_come_and_intents_go_without_blocking(world: Realm, bridge: Bridge) -> None:
    async def listen(count: int) -> list[int]:
        found: list[int] = []
        views = bridge.views()
        async for view in views:
            found.append(sold(view))
            if len(found) == count:
                break
            await bridge.dispatch_async(SELL)  # from the loop one may act
        await views.aclose()
        return found

    async def all_of_it() -> tuple[list[int], str]:
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(listen(3))
            await asyncio.sleep(0)
            first = await bridge.dispatch_async(SELL)
        return listening.result(), first.status

    assert asyncio.run(all_of_it()) == ([1, 2, 3], "completed")
    with pytest.raises(RefusedError, match=r"field\.set"):
        asyncio.run(bridge.set_async("sold", 1))
    bridge.dispatch(SELL)  # nobody listens any more, and the loop is closed
