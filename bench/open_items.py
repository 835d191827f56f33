"""What is open in a realm when it is cut: made in its first commits, looked for and finished after the cut.

Each item begins in the part of the log that is cut and ends after it: proposals that wait for a person or for the
adoption of a policy, effects that are offered, claimed and in doubt, leases that are held and requested, a branch, and
a policy of which an older version is in force than the newest one of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import structs
from pydantic import BaseModel

from authority import Approve, Policy, Reject, rule
from bench.realms import MEMBERS, BenchRealm
from host import external
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from world.events.lease_events import VerdictGiven
from world.model.intent import IntentBody, IntentScope
from world.model.snapshot import EffectAnswer
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from worldprotocol import Realm

__all__ = ["Item", "OpenItems", "YardRealm", "yard"]

START = 1_700_000_000_000
DAY = 86_400_000
MINUTE = 60_000
BRANCH = "draft"
SCOPE = ("counters.*", "last")
RESOURCE = "FILE:/yard/gate"


class Yard(BaseModel):
    """The state: the counters of ``bench.realms``, and what carriers did."""

    counters: dict[str, int] = {}
    last: str = ""
    done: dict[str, str] = {}


class Raise(BaseModel):
    """The input of ``counter.raise``."""

    counter: str
    by: int


class Load(BaseModel):
    """The input of an action with an effect."""

    name: str


def yard() -> Domain:
    """Return the domain of ``bench.realms`` with three actions more, each with an effect that workers perform."""
    domain = Domain("urn:bench:yard", version="1.0.0", state=Yard)

    @domain.action("counter.raise", version="1")
    def counter_raise(ctx: ActionContext, wanted: Raise) -> Any:
        at = ctx.data["counters"].get(wanted.counter, 0)
        return [set_(f"counters.{wanted.counter}", at + wanted.by), set_("last", wanted.counter)]

    for name in EFFECTS:
        domain.action(name, version="1", manifest=[{"predicate": "MUTATES", "resource": "SYMBOL:{input.name}"}])(
            _with_effect(name)
        )
    return domain


class YardRealm(BenchRealm):
    """The realm of the items, to be filled; its intents have a scope, so that they do not wait for the effects."""

    def __init__(self, address: str) -> None:
        """Open the realm."""
        super().__init__(address, durability="normal", domain=yard())

    def body(self, number: int) -> IntentBody:
        """Return the body of the number-th intent."""
        return structs.replace(super().body(number), scope_proposal=IntentScope(allowed_paths=SCOPE))


def _with_effect(effect_type: str) -> Callable[..., Any]:
    def action(ctx: ActionContext, load: Load) -> Any:
        answer = yield effect(f"yard.{effect_type}", name=load.name)
        return [set_(f"done.{load.name}", answer)]

    return action


EFFECTS = {"carry": DAY, "lift": DAY, "charge": MINUTE}
"""Actions with an effect of the same name, and the time that a claim of it lasts, in ms."""


ENDED = {
    "branch": "continued",
    "charge": "effect in doubt resolved",
    "lift": "claimed effect completed",
    "carry": "offered effect claimed and completed",
    "awaits approval": "approved and completed",
    "lease held": "renewed and released",
    "lease requested": "granted at the release",
    "held": "decided by the older policy, which is in force",
}
"""What becomes of each item."""


@rule("amounts")
def _all(_case: Any) -> Any:
    return Approve("any amount")


@rule("amounts")
def _up_to_five(case: Any) -> Any:
    return Approve("a small amount") if case.intent.body.input["by"] <= 5 else Reject("a large amount")


@rule("amounts")
def _up_to_two(case: Any) -> Any:
    return Approve("a small amount") if case.intent.body.input["by"] <= 2 else Reject("a large amount")


FIRST, IN_FORCE, NEWEST = (Policy("guard", [one]) for one in (_all, _up_to_five, _up_to_two))


@dataclass(frozen=True, slots=True)
class Item:
    """Something that was open before the cut.

    Args:
        what: what it is.
        begun: position of the event with which it began.
        ended: what became of it after the cut.
    """

    what: str
    begun: int
    ended: str


class OpenItems:
    """Items that are open in one realm.

    Args:
        address: the realm's address; nothing may be there.
    """

    def __init__(self, address: str) -> None:
        """Found the realm and open the items; ``ann`` is approved at once, as in ``bench.realms``."""
        self._address = address
        self._ids = SequentialIds("open")
        self._proposals: dict[str, str] = {}
        self._positions: dict[str, int] = {}
        with Realm.create(address, domain=yard(), policies=[FIRST], **self._options(START)) as realm:
            realm.register("ann", "human", binding={"kind": "auto_approve"})
            realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "guard"})
            realm.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"], "timeoutMs": 30 * DAY})
            realm.act("bot", "counter.raise", {"counter": "c0", "by": 6})
        with self._opened(START, IN_FORCE) as realm:
            realm.adopt_policy("guard")
            realm.act("bot", "counter.raise", {"counter": "c0", "by": 5})
            self._branch(realm)
            self._effects(realm)
            self._wait(realm, "awaits approval", "kid", {"counter": f"c{MEMBERS}", "by": 1})
            self._lease(realm)
        with self._opened(START + 2 * MINUTE, NEWEST) as realm:
            self._wait(realm, "held", "bot", {"counter": f"c{MEMBERS}", "by": 4})

    def _options(self, now_ms: int) -> dict[str, Any]:
        effects = [external(f"yard.{name}", time_limit_ms=limit) for name, limit in EFFECTS.items()]
        return {"effects": effects, "clock": ManualClock(now_ms, 1), "ids": self._ids}

    def _opened(self, now_ms: int, policy: Policy) -> Realm:
        return Realm.open(self._address, domain=yard(), policies=[policy], **self._options(now_ms))

    def _note(self, realm: Realm, what: str) -> None:
        self._positions[what] = realm.log.head().size

    def _wait(self, realm: Realm, what: str, actor: str, wanted: dict[str, Any]) -> None:
        self._note(realm, what)
        self._proposals[what] = realm.act(actor, "counter.raise", wanted, scope=SCOPE).proposal_id

    def _branch(self, realm: Realm) -> None:
        self._note(realm, "branch")
        realm.create_branch(BRANCH)
        realm.act("ann", "counter.raise", {"counter": "c1", "by": 1}, scope=SCOPE, branch=BRANCH)

    def _effects(self, realm: Realm) -> None:
        """Offer three effects; one stays so, one is claimed, and one is in doubt because its worker went silent."""
        self._claims: dict[str, EffectClaim] = {}
        for name in ("charge", "lift", "carry"):
            self._note(realm, name)
            self._proposals[name] = realm.act("ann", name, {"name": name}, scope=[f"done.{name}"]).proposal_id
            if name != "carry":
                claim = realm.claim_effect(worker="van", types=[f"yard.{name}"])
                assert claim is not None
                self._claims[name] = claim

    def _lease(self, realm: Realm) -> None:
        """Grant a lease to a younger agent, for which an older one waits."""
        for agent in ("cleo", "dora"):
            realm.leases.desk.register_agent(agent, by="operator")
        self._note(realm, "lease held")
        self._lease_id = self._request(realm, "dora").leases[0].lease_id
        self._note(realm, "lease requested")
        assert self._request(realm, "cleo").queued

    def _request(self, realm: Realm, agent: str) -> VerdictGiven:
        scope = [{"predicate": "MUTATES", "resource": RESOURCE}]
        manifest = {"ver": "1.0", "session_id": f"{agent}-1", "agent_id": agent, "scope": scope}
        return realm.leases.desk.request(manifest, by=agent, ttl_ms=DAY, queue=True)

    def finish(self) -> list[Item]:
        """Finish each item; raises ``AssertionError`` where one is not as it was left, or cannot be finished."""
        with self._opened(START + 3 * MINUTE, NEWEST) as realm:
            assert self._statuses(realm) == {
                "awaits approval": "evaluating",
                "held": "submitted",
                **dict.fromkeys(EFFECTS, "executing"),
            }
            assert [one["proposalId"] for one in realm.host.stuck()] == [self._proposals["charge"]]
            self._finish_effects(realm)
            self._finish_lease(realm)
            realm.decide(self._proposals["awaits approval"], "approve", by="ann")
            head = realm.branch(BRANCH).head
            assert (
                realm.act("ann", "counter.raise", {"counter": "c1", "by": 1}, scope=SCOPE, branch=BRANCH).status
                == "completed"
            )
            assert realm.sealed(realm.branch(BRANCH).head).parent == head
        with self._opened(START + 4 * MINUTE, IN_FORCE) as realm:  # decides what was held for the other program
            for by, status in ((5, "completed"), (6, "rejected")):
                assert realm.act("bot", "counter.raise", {"counter": "c0", "by": by}, scope=SCOPE).status == status
            assert set(self._statuses(realm).values()) == {"completed"}
            assert set(realm.data()["done"]) == set(EFFECTS)
        return [Item(what, position, ENDED[what]) for what, position in self._positions.items()]

    def _statuses(self, realm: Realm) -> dict[str, str]:
        return {what: realm.proposal(name).status for what, name in self._proposals.items()}

    def _finish_effects(self, realm: Realm) -> None:
        claim = realm.claim_effect(worker="cart", types=["yard.carry"])
        assert claim is not None
        for one in (claim, self._claims["lift"]):
            realm.complete_effect(one, Performed(EffectAnswer("done")))
        realm.host.resolve(self._proposals["charge"], "happened", by="ann", reason="the receipt", value="done")

    def _finish_lease(self, realm: Realm) -> None:
        desk = realm.leases.desk
        desk.heartbeat([self._lease_id], agent_id="dora", session_id="dora-1")
        assert realm.realm().klis.requests
        desk.release([self._lease_id], agent_id="dora", session_id="dora-1")
        assert not realm.realm().klis.requests
        (lease,) = realm.realm().klis.leases.values()
        desk.release([lease.lease_id], agent_id="cleo", session_id="cleo-1")
