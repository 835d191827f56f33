"""Reading a realm: what a remote realm returns equals what the log on this machine has; and what redaction hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.remote.yards import OVER_HTTP, Yard
from tests.support.tables import for_each
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.read_models.blame import Blame
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.event_forms import HiddenEvent
from worldprotocol.api.remote.realm import RemoteRealm
from worldprotocol.export.proofs.checkpoint import read_checkpoint


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(RefusedError) as refused:
        call()
    return str(refused.value.code)


@pytest.fixture(scope="module", autouse=True)
def _filled(yard: Yard) -> None:
    for number in range(3):
        yard.realm("kid").act("kid", "order.place", {"item": "tea", "number": str(number)}, wait=True)
    yard.realm("bot").act("bot", "order.place", {"item": "cake", "number": "3"}, scope=["orders.3"])
    yard.realm("ops").create_branch("plan", by="ops")


READS: dict[str, Callable[[Realm], Any]] = {
    "branches": lambda realm: realm.branches(),
    "branch": lambda realm: (realm.branch(), realm.branch("plan")),
    "data": lambda realm: realm.data(),
    "data of a world": lambda realm: realm.data(list(realm.worlds())[-1].world_id),
    "sealed": lambda realm: (realm.sealed(), realm.sealed(list(realm.worlds())[-1].world_id)),
    "worlds": lambda realm: list(realm.worlds()),
    "two worlds": lambda realm: list(realm.worlds(2)),
    "snapshot": lambda realm: realm.snapshot(),
    "computed": lambda realm: realm.computed(),
    "blame": lambda realm: realm.blame("orders.1"),
    "blame of genesis": lambda realm: realm.blame("orders", list(realm.worlds())[-1].world_id),
    "events": lambda realm: list(realm.events()),
    "some events": lambda realm: list(realm.events(5, 17)),
    "proposals": lambda realm: list(realm.proposals()),
    "proposals of an actor": lambda realm: list(realm.proposals(actor="bot", status="evaluating", branch="main")),
    "offered effects": lambda realm: realm.offered_effects(),
}


@for_each("what", READS)
def test_what_is_read_equals_what_the_log_has(yard: Yard, what: str) -> None:
    with yard.reading() as log:
        expected = READS[what](log)
    found = READS[what](yard.realm("all"))
    assert found == expected
    assert type(found) is type(expected)


def test_the_blame_names_the_decision_and_the_intent(yard: Yard) -> None:
    found = yard.realm("all").blame("orders.2")
    assert isinstance(found, Blame)
    assert found.proposal is not None
    assert (found.value, found.proposal.submitted.actor.actor_id) == ("tea", "kid")
    assert found.decision is not None
    assert [patch.to_wire()["path"] for patch in found.patches]


def test_the_actions_of_the_caller_are_listed(yard: Yard) -> None:
    kid, reader = yard.realm("kid").actions, yard.realm("all").actions
    with yard.reading() as log:
        known = {one.type for one in log.actions.catalog("kid").actions}
    catalog = kid.catalog("kid")
    assert {one.type for one in catalog.actions} == known
    assert kid.catalog("kid", mode="debug", pruning={"maxActions": 1}).actions[0].type == "order.bake"
    assert next(tool["name"] for tool in kid.tools("kid").to_wire()["tools"]) == "order-bake"
    with_reasons, explanations = reader.explain("all", pruning={"policy": "mark_only"})
    assert [one.type for one in explanations] == [one.type for one in with_reasons.actions]
    assert refusal(lambda: kid.catalog("kid", branch="none")) == "UNKNOWN_BRANCH"
    assert refusal(lambda: kid.catalog("kid", mode="loud")) == "INVALID_VALUE"  # type: ignore[arg-type]


@pytest.fixture
def remote(yard: Yard) -> Callable[[str], RemoteRealm]:
    """Return the realm as an actor uses it from another machine."""

    def of(actor: str) -> RemoteRealm:
        found = yard.realm(actor)
        assert isinstance(found, RemoteRealm)
        return found

    return of


@pytest.mark.parametrize("yard", OVER_HTTP, indirect=True)
def test_rights_tokens_and_the_registry_are_listed(yard: Yard, remote: Callable[[str], RemoteRealm]) -> None:
    auditor = remote("all")
    with yard.reading() as log:
        view = log.realm()
        assert {name: dict(held) for name, held in auditor.access.rights().items()} == {
            name: dict(held) for name, held in view.rights.items()
        }
        assert dict(auditor.access.tokens()) == dict(view.tokens.items())
        assert {name: actor for name, (actor, _) in auditor.actors().items()} == dict(view.actors)
        assert {name: binding for name, (_, binding) in auditor.actors().items()} == {
            name: view.bindings.get(name) for name in view.actors
        }
        assert read_checkpoint(auditor.checkpoint().encode()).head == log.log.head()
        head = log.branch().head
    assert (auditor.policies(), auditor.keys(), auditor.runs(), auditor.host.stuck()) == ([], [], [], [])
    assert auditor.verify()["ok"] is True
    assert auditor.receipt("world", head)["worldProtocol"] == "receipt"
    assert auditor.diff(head)["same"] is True
    assert auditor.leases.in_force() == auditor.leases.waits() == []
    assert refusal(lambda: remote("kid").access.tokens()) == "RIGHT_MISSING"


@pytest.mark.parametrize("yard", OVER_HTTP, indirect=True)
def test_an_actor_reads_its_own_proposals_only(yard: Yard, remote: Callable[[str], RemoteRealm]) -> None:
    kid = remote("kid")
    assert {one.submitted.actor.actor_id for one in kid.proposals()} == {"kid"}
    with yard.reading() as log:
        [other] = list(log.proposals(actor="bot"))
    assert refusal(lambda: kid.proposal(other.proposal_id)) == "UNKNOWN_PROPOSAL"
    for read in (kid.data, kid.branches, kid.sealed, kid.computed, lambda: list(kid.events())):
        assert refusal(read) == "RIGHT_MISSING"
    assert refusal(lambda: kid.subscribe(lambda *_: None)) == "RIGHT_MISSING"
    assert refusal(lambda: kid.actions.explain("kid")) == "RIGHT_MISSING"
    assert refusal(lambda: kid.actions.catalog("bot")) == "NOT_THE_VERIFIED_ACTOR"
    assert kid.inbox() == []


@pytest.mark.parametrize("yard", OVER_HTTP, indirect=True)
def test_a_reader_with_redaction_gets_what_it_may(yard: Yard, remote: Callable[[str], RemoteRealm]) -> None:
    veil = remote("veil")
    with yard.reading() as log:
        full = list(log.events())
        submitted = next(event for _, event in full if isinstance(event, ProposalSubmitted))
        head = log.branch().head
    shown = list(veil.events())
    assert [position for position, _ in shown] == [position for position, _ in full]
    hidden = [event for _, event in shown if isinstance(event, HiddenEvent)]
    assert hidden
    assert all(one == other for one, other in zip(shown, full, strict=True) if not isinstance(one[1], HiddenEvent))
    assert not any(isinstance(event, ProposalSubmitted) for _, event in shown)
    assert "tea" not in repr(shown)
    assert veil.actions.catalog("veil").actions
    assert refusal(lambda: veil.actions.explain("veil")) == "RIGHT_MISSING"
    assert refusal(lambda: veil.proposal(submitted.proposal_id)) == "RIGHT_MISSING"
    assert list(veil.proposals()) == []
    for read in (veil.data, veil.computed, lambda: veil.blame("orders.1"), lambda: veil.diff(head)):
        assert refusal(read) == "RIGHT_MISSING"
    assert veil.branch().head == head
    assert [one.world_id for one in veil.worlds(1)]
