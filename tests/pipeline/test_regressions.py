"""Situations that once went wrong, each with what must hold."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from host import handler
from tests.pipeline.shop import Bank, Charge, house, open_shop, shop
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.errors import DamagedLogError, RefusedError
from world.limits import Limits
from worldprotocol.api.realm import Realm
from worldprotocol.api.workers import ProcessWorkers


class Bag(BaseModel):
    things: dict[str, int] = {}
    order: list[str] = []


class Names(BaseModel):
    names: dict[str, int]


@pytest.mark.requirement("CARD-replay", "IC-nostate")
def test_an_action_sees_members_in_the_order_in_which_the_log_gives_them_back(tmp_path: Path) -> None:
    bags = Domain("urn:test:bags", version="1.0.0", state=Bag)

    @bags.action("put", version="1")
    def put(ctx: ActionContext, input: Names) -> Any:  # noqa: A002
        return [set_("order", [*ctx.data["things"], *input.names]), set_("things", input.names)]

    address = str(tmp_path / "w.db")
    with Realm.create(address, domain=bags) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.act("ann", "put", {"names": {"tea": 1, "cake": 2, "é": 3}})
        live = world.act("ann", "put", {"names": {"z": 1, "a": 2}})
        assert live.world_id is not None
        assert world.data()["order"][:3] == ["cake", "tea", "é"]
    from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck

    with open_to_recheck(address, domain=bags) as again:
        assert not recheck(again, every=True).divergences


def test_an_effect_request_that_the_log_cannot_hold_ends_its_proposal_and_nothing_else(log_url: str) -> None:
    wordy = Domain("urn:test:wordy", version="1.0.0", state=Bag)

    @wordy.action("ask", version="1")
    def ask(ctx: ActionContext, input: Charge) -> Any:  # noqa: A002
        yield effect("bank.charge", amount=1, words="x" * input.amount)
        return []

    bank = Bank()
    with Realm.create(log_url, domain=wordy, effects=[bank.handler()], limits=Limits(max_event_bytes=4_000)) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        failed = world.act("ann", "ask", {"amount": 5_000})
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "EFFECT_TOO_LARGE"
        world.settle()
        assert world.act("ann", "ask", {"amount": 1}).status == "completed"
        assert bank.charged == [1]


@pytest.mark.requirement("HC-journal", "WP-exec")
def test_an_effect_that_waits_to_be_made_is_not_taken_for_abandoned(log_url: str) -> None:
    clock, bank = ManualClock(1_000), Bank()
    with open_shop(log_url, clock=clock, effects=[bank.handler()]) as world:
        world.bind("kid", {"kind": "hitl", "ask": ["ann"], "timeoutMs": 10, "onTimeout": "approve"})
        asked = world.act("kid", "charge", {"amount": 5})
        clock.advance(1_000)
        world.settle()
        done = world.proposal(asked.proposal_id)
        assert done.status == "completed", done.error
        assert bank.charged == [5]
        assert done.dropped == 0


def test_two_realms_in_one_process_are_two_workers(tmp_path: Path) -> None:
    first, second = ProcessWorkers(), ProcessWorkers()
    assert first.me != second.me
    assert not first.is_gone(second.me)
    second.close()
    assert first.is_gone(second.me)
    assert not first.is_gone("elsewhere:1:0.00:1")


@pytest.mark.requirement("WP-decision")
def test_a_deadline_that_two_rulings_share_runs_out_once(log_url: str) -> None:
    from authority import Escalate, Policy, rule

    @rule
    def ask_ann(case: Any) -> Any:
        return Escalate("ann", "one")

    @rule
    def ask_kid(case: Any) -> Any:
        return Escalate("kid", "two")

    clock = ManualClock(1_000)
    with open_shop(log_url, clock=clock) as world:
        assert world.parts is not None
        world.parts.policies.add(Policy("both", [ask_ann, ask_kid]))
        world.adopt_policy("both")
        world.bind("bot", {"kind": "policy_rules", "policy": "both", "timeoutMs": 500, "onTimeout": "reject"})
        asked = world.act("bot", "sell", {"item": "tea"})
        assert world.decide(asked.proposal_id, "approve", by="ann").status == "evaluating"
        clock.advance(1_000)
        world.settle()
        assert world.proposal(asked.proposal_id).status == "rejected"


@pytest.mark.requirement("WP-schema")
def test_a_process_whose_domain_is_no_longer_in_force_changes_nothing(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    changed = Domain("urn:test:shop", version="2.0.0", state=shop.schema.portable["state"])
    changed.flow("rest", {"kind": "seq", "steps": []})
    with open_shop(address) as old:
        waiting = old.act("bot", "sell", {"item": "tea", "count": 5})
        Realm.open_to_adopt(address, domain=changed).close()
        with pytest.raises(RefusedError) as refused:
            old.act("ann", "sell", {"item": "tea"})
        assert refused.value.code in ("SCHEMA_MISMATCH", "WRONG_SCHEMA")
        assert old.proposal(waiting.proposal_id).status == "superseded"
        size = old.log.head().size
        with pytest.raises(RefusedError):
            old.settle()
        assert old.log.head().size == size


@pytest.mark.requirement("WP-schema")
def test_a_new_required_field_is_not_adopted_silently(tmp_path: Path) -> None:
    class More(Bag):
        added: int = 7

    address = str(tmp_path / "w.db")
    before = Domain("urn:test:bags", version="1.0.0", state=Bag)
    before.flow("rest", {"kind": "seq", "steps": []})
    after = Domain("urn:test:bags", version="2.0.0", state=More)
    after.flow("rest", {"kind": "seq", "steps": []})
    Realm.create(address, domain=before).close()
    with pytest.raises(RefusedError) as refused:
        Realm.open_to_adopt(address, domain=after)
    assert refused.value.code == "DATA_DOES_NOT_FIT"
    assert "added" in refused.value.message


def test_rules_count_only_earlier_proposals(log_url: str) -> None:
    from authority import Approve, Policy, rule

    counted: list[int] = []

    @rule
    def count(case: Any) -> Any:
        counted.append(case.history.count(actor_id=case.actor.actor_id))
        return Approve("counted")

    with open_shop(log_url) as world:
        assert world.parts is not None
        world.parts.policies.add(Policy("count", [count]))
        world.adopt_policy("count")
        world.bind("bot", {"kind": "policy_rules", "policy": "count"})
        for _ in range(3):
            world.act("bot", "sell", {"item": "tea"})
    assert counted == [0, 1, 2]


def damaged(address: str, statement: str, *values: Any) -> None:
    connection = sqlite3.connect(address)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


@pytest.mark.requirement("CARD-log")
def test_nothing_is_built_on_a_changed_head(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with open_shop(address, clock=ManualClock(1_000), ids=SequentialIds()) as world:
        world.act("ann", "sell", {"item": "tea", "count": 3})
        first = world.branch().head
        world.act("ann", "sell", {"item": "tea", "count": 3})
    other = str(tmp_path / "other.db")
    Path(other).write_bytes(Path(address).read_bytes())
    damaged(
        address,
        "UPDATE wp_event SET state = replace(state, '\"value\":4', '\"value\":9') WHERE topic = 'world.sealed'",
    )
    damaged(other, "UPDATE wp_branch SET head = ?", first)
    for path, code in ((address, "EVENT_CHANGED"), (other, "INDEX_DAMAGED")):
        with pytest.raises(DamagedLogError) as damage, Realm.open(path, domain=shop, policies=[house]) as world:
            world.act("ann", "sell", {"item": "tea"})
        assert damage.value.code == code


def test_a_result_whose_recording_failed_is_recorded_with_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    address = str(tmp_path / "w.db")
    blockers: list[sqlite3.Connection] = []

    @handler("bank.charge")
    def charge(params: Any, call: Any) -> Any:
        made.append(1)
        blocker = sqlite3.connect(address, check_same_thread=False)
        blocker.execute("BEGIN IMMEDIATE")
        blockers.append(blocker)
        return {"receipt": "r"}

    with open_shop(address, effects=[charge]) as world:
        monkeypatch.setattr(world.log._store, "_patience_s", 0.05)
        with pytest.raises(RefusedError) as busy:
            world.act("ann", "charge", {"amount": 1})
        assert busy.value.code == "LOG_BUSY"
        blockers[0].rollback()
        blockers[0].close()
        world.settle()
        assert world.data()["receipts"] == ["r"]
        assert made == [1]
