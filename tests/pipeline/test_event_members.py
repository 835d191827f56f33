"""What the log holds of a history in which everything happens, event by event and member by member.

The expected events are in ``event_members.json``. A change of it is a change of the log's format: read it as one, and
write the file anew with ``python -m tests.pipeline.test_event_members``.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from host import EffectFailure, handler
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.core import Domain
from world.errors import RefusedError
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import state_of
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.api.realm import Realm

EXPECTED = Path(__file__).parent / "event_members.json"


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def put(path: str, value: Any) -> dict[str, Any]:
    return {"kind": "patch", "op": "set", "path": path, "value": value}


def a_domain() -> Domain:
    """A portable domain: no code, so that nothing of the log depends on this file."""
    fields = {
        "count": {"type": "number", "default": 0},
        "notes": {"type": "array", "default": [], "items": {"type": "any"}},
    }
    domain = Domain("urn:test:members", version="1.2.3", state={"fields": fields})
    number = {"type": "object", "fields": {"by": {"type": "number", "required": True}}}
    more = {"kind": "add", "left": get("count"), "right": get("input.by")}
    domain.flow("add", {"kind": "seq", "steps": [put("count", more)]}, input=number, label="Add")
    domain.flow("fall", {"kind": "fail", "code": "FELL", "message": lit("it fell")})
    low = {"kind": "lt", "left": get("count"), "right": lit(3)}
    domain.flow("gated", put("count", lit(9)), available=low)
    work = {"kind": "effect", "type": "work", "params": {"what": get("input.what"), "n": get("count")}}
    name = {"type": "object", "fields": {"what": {"type": "string", "required": True}}}
    domain.flow(
        "do",
        {"kind": "seq", "steps": [work, put("count", {"kind": "add", "left": get("count"), "right": lit(1)})]},
        input=name,
        manifest=[{"predicate": "MUTATES", "resource": "COMMAND:{input.what}", "confidence": 0.6}],
    )
    return domain


class Plan:
    """Answers of the effect, call by call."""

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def handler(self, **promises: Any) -> Any:
        @handler("work", **promises)
        def work(params: Any, call: Any) -> Any:
            return self.answers.pop(0) if self.answers else {"done": params["what"]}

        return work


PEOPLE: dict[str, tuple[str, dict[str, Any]]] = {
    "ann": ("human", {"kind": "auto_approve"}),
    "bob": ("human", {"kind": "hitl", "ask": ["ann", "eve"], "timeoutMs": 50, "then": [{"ask": ["*"]}]}),
    "cat": ("agent", {"kind": "tribunal", "members": ["ann", "bob", "dan"], "rule": "majority"}),
    "dan": ("human", {"kind": "hitl", "ask": ["ann"], "timeoutMs": 5, "onTimeout": "approve"}),
    "eve": ("system", {"kind": "auto_approve"}),
}


def refused(call: Any, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code


def judged(world: Realm, clock: ManualClock) -> None:
    """Decide: at once, by people, by votes, by the clock; with and without scopes."""
    world.act("ann", "add", {"by": 2}, note="first", trace={"ticket": 7})
    world.act("ann", "add", {"by": 1}, scope=["data.count"], execution_key="own key")
    world.act("ann", "gated")
    world.act("ann", "fall")
    world.act("ann", "add", {"by": "x"})
    world.act("ann", "add", {"by": 1}, scope=["data.notes"])
    asked = world.act("bob", "add", {"by": 1}, scope=["data.count", "data.notes"]).proposal_id
    world.decide(asked, "ask", by="ann", reason="why?")
    world.decide(asked, "reply", by="bob", reason="because")
    refused(lambda: world.decide(asked, "reply", by="bob", reason="again"), "NO_OPEN_QUESTION")
    world.decide(asked, "narrow", by="ann", scope=["data.count"], reason="enough")
    gone = world.act("bob", "add", {"by": 1}).proposal_id
    world.decide(gone, "escalate", by="ann", reason="not mine")
    world.decide(gone, "reject", by="ann", reason="no")
    late = world.act("dan", "add", {"by": 1}).proposal_id
    clock.advance(6)
    world.settle()
    assert world.proposal(late).status == "completed"
    world.act("bob", "add", {"by": 1})
    clock.advance(51)
    world.settle()
    vote = world.act("cat", "add", {"by": 1}).proposal_id
    world.decide(vote, "abstain", by="bob")
    world.decide(vote, "delegate", by="ann", to="eve")
    world.decide(vote, "approve", by="eve")
    world.decide(vote, "approve", by="dan")


def branched(world: Realm) -> None:
    """Fork, switch with a proposal waiting, and go on from a failed world."""
    first = world.act("ann", "add", {"by": 1}).submitted.base_world
    world.act("ann", "add", {"by": 5}, base_world=first)
    world.act("ann", "add", {"by": 5}, base_world=first, fork_name="forked")
    failed = world.act("ann", "fall").world_id
    refused(lambda: world.act("ann", "add", {"by": 1}, base_world=failed), "FAILED_BASE")
    world.act("ann", "add", {"by": 1}, base_world=failed, allow_failed_base=True)
    world.create_branch("side")
    waiting = world.act("bob", "add", {"by": 7}).proposal_id
    world.switch_branch("side")
    assert world.proposal(waiting).status == "superseded"
    world.act("ann", "add", {"by": 1}, branch="main")


def executed(world: Realm, clock: ManualClock, plan: Plan) -> None:
    """Make effects: with a result, with an error, again and again, and for one that waits for its leases."""
    world.act("ann", "do", {"what": "a"})
    plan.answers = [EffectFailure("BUSY", "come back")]
    world.act("ann", "do", {"what": "b"})
    plan.answers = [EffectFailure("BUSY", "come back", retryable=True)] * 2
    world.act("ann", "do", {"what": "c"})
    world.act("ann", "do", {"what": "x y\n"})
    held = world.leases.desk.request(
        {
            "ver": "1.0",
            "session_id": "s",
            "agent_id": "zoe",
            "scope": [{"predicate": "MUTATES", "resource": "COMMAND:d", "confidence": "Low"}],
            "priority_timestamp": 5,
        },
        by="zoe",
        ttl_ms=5_000,
    )
    world.act("ann", "do", {"what": "d"})
    lease = held.leases[0].lease_id
    clock.advance(3)
    world.leases.desk.heartbeat([lease], agent_id="zoe", session_id="s")
    world.leases.desk.release([lease], agent_id="zoe", session_id="s")
    clock.advance(100)
    world.settle()


def history(address: str) -> list[list[Any]]:
    """Let everything happen, and return topic, version and members of every event."""
    clock, plan = ManualClock(1_000), Plan()
    klis = KlisSettings(backoff_ms=2, max_backoff_ms=4, max_proposal_retries=2)
    limits = Limits(klis=klis, judge_invalid_input=True)
    effects = [plan.handler(idempotent=True, retries=2, backoff_ms=1, time_limit_ms=60_000)]
    with Realm.create(
        address, domain=a_domain(), data={"count": 1}, clock=clock, ids=SequentialIds(), effects=effects, limits=limits
    ) as world:
        for name, (kind, _) in PEOPLE.items():
            world.register(name, kind, name=name.title(), meta={"of": "us"})  # type: ignore[arg-type]
        for name, (_, binding) in PEOPLE.items():
            world.bind(name, binding)
        judged(world, clock)
        branched(world)
        executed(world, clock, plan)
        assert verify(world.log).ok
        assert recheck(world, every=True).ok
        size = world.log.head().size
        told = [[one.topic, one.schema_version, state_of(one)] for one in world.log.read(0, size)]
    workers = {state.pop("worker") for topic, _, state in told if topic == "execution.started"}
    assert len(workers) == 1  # it names the process
    return told


@pytest.mark.requirement("CARD-log", "CARD-tests", "WP-events", "WP-exec", "WP-decision", "INT-14.3")
def test_every_event_of_a_history_has_the_members_that_it_should_have(tmp_path: Path) -> None:
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    told = history(str(tmp_path / "w.db"))
    assert [one[0] for one in told] == [one[0] for one in expected]
    for found, wanted in zip(told, expected, strict=True):
        assert found == wanted


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        lines = ",\n".join(json.dumps(one, ensure_ascii=False) for one in history(f"{folder}/w.db"))
    EXPECTED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
