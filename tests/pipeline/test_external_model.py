"""Workers against a simple model of their claims, in random histories with cancellations, revocations and restarts."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from host import external
from tests.pipeline.offering import GRACE_MS, LIMIT_MS, START, answered, failing, room
from tests.pipeline.works import check_log
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.execution_events import EffectDropped
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.pipeline.effects.external_effects import EXTENSIONS
from world.state.effect_claim import EffectClaim
from worldprotocol.api.realm import Realm

BACKOFF_MS = 400
TYPES = {"safe": True, "once": False}
"""The types of effects, and whether each may be repeated; both are retried once at most."""

EFFECTS = [
    external(name, idempotent=idempotent, retries=1, backoff_ms=BACKOFF_MS, time_limit_ms=LIMIT_MS)
    for name, idempotent in TYPES.items()
]


@dataclass(slots=True)
class Wanted:
    """What the model knows of the one effect of a proposal."""

    kind: str
    since: int
    state: Literal["offered", "claimed", "doubtful", "ended"] = "offered"
    token: int = 0
    deadline: int = 0
    failures: int = 0
    due: int = 0
    over: str | None = None
    status: str = "executing"

    def end(self, status: str) -> None:
        """End with the proposal; one that was called off fails whatever the result was."""
        self.state, self.status = "ended", "failed" if self.over else status


class Workers(RuleBasedStateMachine):
    """Two processes of one realm, any number of workers, and what each claim is worth."""

    claims = Bundle("claims")

    @initialize()
    def found(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.address = str(Path(self.folder.name) / "w.db")
        self.clock = ManualClock(START)
        self.numbers = itertools.count()
        limits = Limits(klis=KlisSettings())
        self.realm = Realm.create(
            self.address, domain=room, effects=EFFECTS, clock=self.clock, ids=SequentialIds(), limits=limits
        )
        self.realm.register("ann", "human", binding={"kind": "auto_approve"})
        self.other = self.opened()
        self.wanted: dict[str, Wanted] = {}
        self.answered: dict[int, str] = {}  # what each token's result was recorded as
        self.given: dict[int, EffectClaim] = {}
        self.dropped: set[int] = set()  # the tokens of claims under which a late result was reported

    def opened(self) -> Realm:
        ids = SequentialIds(f"again {next(self.numbers)}")
        return Realm.open(self.address, domain=room, effects=EFFECTS, clock=self.clock, ids=ids)

    def teardown(self) -> None:
        if not hasattr(self, "realm"):
            return
        self.realm.close()
        self.other.close()
        check_log(self.address, domain=room)
        self.folder.cleanup()

    # The model

    def pass_time(self) -> None:
        """End the claims whose deadlines are over, as every commit does."""
        now = self.clock.now_ms()
        for one in self.wanted.values():
            if one.state == "claimed" and one.deadline < now:
                if one.over:
                    one.end("failed")
                elif TYPES[one.kind]:
                    one.state, one.since = "offered", now
                else:
                    one.state = "doubtful"

    def why_lost(self, claim: EffectClaim) -> str | None:
        """Return why a claim does not hold; None while it does."""
        one = self.wanted[claim.proposal_id]
        if one.status != "executing":
            return "ENDED"
        if one.state == "claimed" and one.token == claim.token and self.given[claim.token] == stripped(claim):
            return None
        if self.given.get(claim.token) != stripped(claim):
            return "NOT_HOLDER"
        return "OTHER_CLAIM" if one.state == "claimed" else "LAPSED"

    def call_off(self, name: str, why: str) -> None:
        one = self.wanted[name]
        one.over = one.over or why
        if one.state in ("offered", "doubtful"):
            one.end("failed")

    # What happens

    @rule(kind=st.sampled_from(sorted(TYPES)))
    def want(self, kind: str) -> None:
        box = f"b{len(self.wanted)}"
        asked = {"box": box, "effect": kind}
        proposal = self.realm.act("ann", "do", asked, scope=[f"boxes.{box}"])
        assert proposal.status == "executing"
        self.pass_time()
        self.wanted[proposal.proposal_id] = Wanted(kind, self.clock.now_ms())

    @rule(target=claims, kinds=st.sampled_from([None, {"safe"}, {"once"}]), worker=st.sampled_from(["w1", "w2"]))
    def claim(self, kinds: set[str] | None, worker: str) -> Any:
        claim = self.other.claim_effect(kinds, worker=worker)
        self.pass_time()
        now = self.clock.now_ms()
        free = {
            name: one
            for name, one in self.wanted.items()
            if one.state == "offered" and one.due <= now and (kinds is None or one.kind in kinds)
        }
        if claim is None:
            assert not free
            return None
        assert free[claim.proposal_id].since == min(one.since for one in free.values())
        one = free[claim.proposal_id]
        assert claim.token > max(self.given, default=0)
        assert (claim.attempt, claim.deadline) == (one.failures + 1, now + LIMIT_MS + GRACE_MS)
        one.state, one.token, one.deadline = "claimed", claim.token, claim.deadline
        self.given[claim.token] = stripped(claim)
        return claim

    @rule(claim=claims)
    def heartbeat(self, claim: EffectClaim | None) -> None:
        if claim is None:
            return
        self.pass_time()
        one = self.wanted[claim.proposal_id]
        why = self.why_lost(claim) or one.over
        if why is not None:
            with pytest.raises(RefusedError) as refused:
                self.other.heartbeat_effect(claim)
            assert (refused.value.code, refused.value.details["why"]) == ("CLAIM_LOST", why)
            return
        deadline = self.clock.now_ms() + LIMIT_MS + GRACE_MS
        if deadline - one.deadline >= LIMIT_MS // EXTENSIONS:
            one.deadline = deadline
        assert self.other.heartbeat_effect(claim).deadline == one.deadline

    @rule(
        claim=claims,
        outcome=st.sampled_from(["done", "done", "later", "never"]),
        forged=st.sampled_from([None, None, None, "worker", "token", "claim_id"]),
        here=st.booleans(),
    )
    def complete(self, claim: EffectClaim | None, outcome: str, forged: str | None, here: bool) -> None:
        if claim is None:
            return
        if forged is not None:
            false: dict[str, Any] = {"worker": "eve", "token": claim.token + 1, "claim_id": "made-up"}
            claim = msgspec.structs.replace(claim, **{forged: false[forged]})
        result = answered("x") if outcome == "done" else failing(retryable=outcome == "later")
        realm = self.realm if here else self.other
        one = self.wanted[claim.proposal_id]
        if self.given.get(claim.token) == stripped(claim) and claim.token in self.answered:
            size = realm.log.head().size
            assert realm.complete_effect(claim, result).status == one.status
            if one.status != "executing":
                assert realm.log.head().size == size
            else:
                self.pass_time()
            return
        self.pass_time()
        why = self.why_lost(claim)
        if why is not None:
            with pytest.raises(RefusedError) as refused:
                realm.complete_effect(claim, result)
            assert (refused.value.code, refused.value.details["why"]) == ("CLAIM_LOST", why)
            if self.given.get(claim.token) == stripped(claim):
                self.dropped.add(claim.token)
            return
        self.answered[claim.token] = outcome
        if outcome == "later" and TYPES[one.kind] and one.failures < 1 and not one.over:
            one.failures += 1
            one.state, one.since, one.due = "offered", self.clock.now_ms(), self.clock.now_ms() + BACKOFF_MS
        else:
            one.end("completed" if outcome == "done" else "failed")
        assert realm.complete_effect(claim, result).status == one.status

    @rule(ms=st.sampled_from([1, BACKOFF_MS - 1, BACKOFF_MS, LIMIT_MS, LIMIT_MS + GRACE_MS, LIMIT_MS + GRACE_MS + 1]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @precondition(lambda self: any(one.status == "executing" for one in self.wanted.values()))
    @rule(data=st.data(), how=st.sampled_from(["cancel", "revoke"]))
    def stop(self, data: st.DataObject, how: str) -> None:
        self.settle()
        running = [name for name, one in self.wanted.items() if one.status == "executing"]
        if not running:
            return
        name = data.draw(st.sampled_from(running))
        if how == "cancel":
            self.other.host.cancel(name, by="ann", reason="not needed")
            self.call_off(name, "CANCELLED")
            return
        leases = [one.lease_id for one in self.realm.realm().klis.leases.values() if one.session.session_id == name]
        if leases:
            self.realm.leases.desk.revoke(leases, by="operator", reason="taken back")
            self.revoke(name)

    def revoke(self, name: str) -> None:
        one = self.wanted[name]
        one.over = "LEASES_REVOKED"
        if one.state == "offered":
            one.end("failed")

    @precondition(lambda self: any(one.state == "doubtful" for one in self.wanted.values()))
    @rule(data=st.data(), choice=st.sampled_from(["retry", "happened", "fail"]))
    def resolve(self, data: st.DataObject, choice: Any) -> None:
        doubtful = [name for name, one in self.wanted.items() if one.state == "doubtful"]
        name = data.draw(st.sampled_from(doubtful))
        one = self.wanted[name]
        value = "seen" if choice == "happened" else None
        done = self.realm.host.resolve(name, choice, by="ann", reason="asked", value=value)
        self.pass_time()
        if choice == "retry" and not one.over:
            one.state, one.since = "offered", self.clock.now_ms()
        elif choice == "retry":
            one.state = "offered"
            self.settle()
            return
        else:
            one.end("completed" if choice == "happened" else "failed")
        assert done.status == one.status

    @rule()
    def settle(self) -> None:
        self.realm.settle()
        self.pass_time()
        for one in self.wanted.values():
            if one.state == "offered" and one.over:
                one.end("failed")

    @rule(which=st.booleans())
    def restart(self, which: bool) -> None:
        """End a process and begin another, which settles."""
        if which:
            self.realm.close()
            self.realm = self.opened()
        else:
            self.other.close()
            self.other = self.opened()
        self.pass_time()

    @invariant()
    def the_realm_is_as_the_model_says(self) -> None:
        if not hasattr(self, "wanted"):
            return
        for realm in (self.realm, self.other):
            states = {one.proposal_id: one.state for one in realm.offered_effects()}
            expected = {name: one.state.replace("doubtful", "in doubt") for name, one in self.wanted.items()}
            assert states == {name: state for name, state in expected.items() if state != "ended"}
        dropped = [1 for _, event in self.realm.events() if isinstance(event, EffectDropped)]
        assert len(dropped) == len(self.dropped)


def stripped(claim: EffectClaim) -> EffectClaim:
    """Return a claim without its deadline, which a heartbeat moves."""
    return msgspec.structs.replace(claim, deadline=0)


@pytest.mark.slow
@pytest.mark.requirement("HC-journal", "HC-handlers", "WP-exec")
def test_workers_do_to_the_realm_what_the_model_says() -> None:
    """Random histories; the log of each is verified and rechecked at its end."""
    run_state_machine_as_test(Workers, settings=settings(max_examples=20, stateful_step_count=25, deadline=None))
