"""The whole pipeline against a simple model of a shop with branches, in random histories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.pipeline.shop import open_shop
from tests.plugins.forms import scaled
from world.errors import RefusedError
from worldprotocol.api.realm import Realm


class Histories(RuleBasedStateMachine):
    """Acts on a real log in memory, and keeps what each branch's stock should be."""

    waiting = Bundle("waiting")
    worlds = Bundle("worlds")

    @initialize(target=worlds)
    def found(self) -> str:
        self.world = open_shop("sqlite:///:memory:")
        self.stock: dict[str, dict[str, int]] = {"main": {"tea": 10, "cake": 3}}
        self.active = "main"
        self.states = {self.world.branch().head: dict(self.stock["main"])}
        self.open: dict[str, tuple[str, str, int]] = {}
        return self.world.branch().head

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.close()

    @rule(target=worlds, item=st.sampled_from(["tea", "cake", "pie"]), count=st.integers(0, 4))
    def sell(self, item: str, count: int) -> str:
        done = self.world.act("ann", "sell", {"item": item, "count": count})
        return self._sold(done, self.active, item, count)

    @rule(target=waiting, item=st.sampled_from(["tea", "cake"]), count=st.integers(3, 5))
    def ask(self, item: str, count: int) -> str:
        asked = self.world.act("bot", "sell", {"item": item, "count": count})
        assert asked.status == "evaluating"
        self.open[asked.proposal_id] = (self.active, item, count)
        return asked.proposal_id

    @rule(proposal=waiting, choice=st.sampled_from(["approve", "reject", "ask"]))
    def answer(self, proposal: str, choice: Any) -> None:
        if proposal not in self.open:
            with pytest.raises(RefusedError) as refused:
                self.world.decide(proposal, choice, by="ann")
            assert refused.value.code == "NOT_WAITING"
            return
        done = self.world.decide(proposal, choice, by="ann")
        if choice == "ask":
            assert done.status == "evaluating"
            return
        branch, item, count = self.open.pop(proposal)
        if choice == "reject":
            assert done.status == "rejected"
        else:
            self._sold(done, branch, item, count)

    @rule(target=worlds, base=worlds, count=st.integers(0, 2))
    def fork(self, base: str, count: int) -> str:
        if self.world.sealed(base).outcome == "failed":
            with pytest.raises(RefusedError) as refused:
                self.world.act("ann", "sell", {"item": "tea", "count": count}, base_world=base)
            assert refused.value.code == "FAILED_BASE"
            return base
        done = self.world.act("ann", "sell", {"item": "tea", "count": count}, base_world=base)
        self.stock[done.branch] = dict(self.states[base])
        return self._sold(done, done.branch, "tea", count)

    @precondition(lambda self: len(self.stock) > 1)
    @rule(number=st.integers(0, 10))
    def switch(self, number: int) -> None:
        others = [name for name in self.stock if name != self.active]
        self.active = others[number % len(others)]
        self.world.switch_branch(self.active)
        for proposal in self.open:
            assert self.world.proposal(proposal).status == "superseded"
        self.open.clear()

    def _sold(self, done: Any, branch: str, item: str, count: int) -> str:
        stock = self.stock[branch]
        if stock.get(item, 0) < count:
            assert done.status == "failed"
            self.states[done.world_id] = dict(stock)
        else:
            assert done.status == "completed", done.error
            stock[item] = stock.get(item, 0) - count
            self.states[done.world_id] = dict(stock)
        world: str = done.world_id
        return world

    @invariant()
    def every_branch_is_as_the_model_says(self) -> None:
        if not hasattr(self, "world"):
            return
        realm = self.world.realm()
        assert realm.active == self.active
        assert set(realm.branches) == set(self.stock)
        assert set(realm.proposals) == set(self.open)
        for name, stock in self.stock.items():
            assert self.world.data(realm.branches[name].head)["stock"] == stock

    @invariant()
    def folding_the_log_gives_the_same_realm(self) -> None:
        if hasattr(self, "world"):
            assert comparable(self.world.archive.fold_realm()) == comparable(self.world.realm())


def comparable(realm: Any) -> dict[str, Any]:
    return {
        "branches": realm.branches,
        "active": realm.active,
        "epoch": realm.epoch,
        "actors": realm.actors,
        "bindings": realm.bindings,
        "policies": {name: event.policy_hash for name, event in realm.policies.items()},
        "queues": realm.queues,
        "running": realm.running,
        "proposals": {name: proposal.to_wire() for name, proposal in realm.proposals.items()},
        "position": realm.position,
    }


TestHistories = pytest.mark.requirement("CARD-log", "CARD-replay", "WP-lineage", "WP-epoch")(Histories.TestCase)
TestHistories.settings = settings(max_examples=scaled(30, ci=12), stateful_step_count=25, deadline=None)


def test_worlds_are_restored_from_checkpoints_and_without(tmp_path: Any) -> None:
    from world.limits import Limits

    address = f"sqlite:///{tmp_path / 'w.db'}"
    with open_shop(address, limits=Limits(checkpoint_every=8)) as world:
        done = [world.act("ann", "sell", {"item": "tea", "count": n % 2}) for n in range(20)]
        expected = {proposal.world_id: world.data(proposal.world_id) for proposal in done}
    with Realm.open_read_only(address) as world:
        assert len(world.archive.rows("checkpoint", {"of_world": done[7].world_id})) == 1
        for world_id, data in expected.items():
            assert world.data(world_id) == data
