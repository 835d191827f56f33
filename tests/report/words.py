"""A log in which everything is named as somebody wishes: one event at least of every kind that a report tells of."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tests.support.making_events import ERROR_REST, made
from world.events.base import Event
from world.events.execution_events import EffectFulfilled, EffectInDoubt, EffectRequested, EffectRetried
from world.events.lease_events import AgentRegistered, RequestWithdrawn, VerdictGiven
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import (
    DecisionMade,
    HumanAnswered,
    HumanTimedOut,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
)
from world.events.realm_events import ActorRegistered, BranchCreated, LogFounded, WorldSealed
from world.events.run_events import RunClosed, RunOpened, RunViolated

START = 1_700_000_000_000
NAME_CHARS = 500
"""Longest ids that the protocol takes, less room for a number; other words may be longer."""


def events_with(words: str) -> Iterator[Event]:
    """Yield the events; ``words`` stands in every name, reason and message."""
    clock = count(START, 7)
    numbers = count()

    def name() -> str:
        return f"{next(numbers)}{words}"[:NAME_CHARS]

    def long() -> str:
        return f"{next(numbers)}{words}"

    yield LogFounded(at=next(clock), log_id=long(), format=1, enforcement="strict")
    actor = {"actorId": name(), "kind": "agent", "name": long()}
    yield made(ActorRegistered, at=next(clock), actor=actor, by=name())
    yield AgentRegistered(at=next(clock), agent_id=actor["actorId"], priority=1, by=name())
    yield PolicyAdopted(
        at=next(clock), name=long(), policy_hash="ab" * 32, policy={"name": "p", "hash": "ab" * 32}, by=name()
    )
    yield _world(next(clock), "genesis", None, None, "main", 0)
    main = long()
    yield BranchCreated(at=next(clock), branch=main, world_id="genesis", by=name())
    for number, ending in enumerate(("completed", "failed", "rejected", "waiting")):
        yield from _proposal(clock, f"p{number}", ending, actor, main, name, long)
    yield from _leases(clock, name, long)


def _world(at: int, world: str, parent: str | None, maker: str | None, branch: str, height: int, **more) -> WorldSealed:
    return made(
        WorldSealed,
        at=at,
        world_id=world,
        content_id="c",
        schema_hash="s",
        snapshot_hash="n",
        parent=parent,
        created_by=maker,
        branch=branch,
        height=height,
        **{"outcome": "completed", **more},
    )


def _proposal(clock, proposal, ending, actor, branch, name, long) -> Iterator[Event]:
    origin = {"projectionId": name(), "source": {"kind": "api", "eventId": name()}, "actor": actor}
    intent = {"body": {"type": name()}, "intentId": name(), "intentKey": name(), "meta": {"origin": origin}}
    yield made(
        ProposalSubmitted, at=next(clock), proposal_id=proposal, actor=actor, intent=intent, branch=branch,
        base_world="genesis", epoch=0,
        execution_key="k", schema_hash="s", attempt=1,
    )  # fmt: skip
    ruling = {"verdict": "wait", "authority": long(), "reason": long(), "ask": [name()], "onTimeout": "reject"}
    yield made(ProposalJudged, at=next(clock), proposal_id=proposal, ruling=ruling, binding={"kind": "hitl"})
    if ending == "waiting":
        return
    answer = {"answerId": name(), "by": {"actorId": name(), "kind": "human"}, "choice": "approve", "reason": long()}
    yield made(HumanAnswered, at=next(clock), proposal_id=proposal, answer=answer)
    decision = {
        "decisionId": long(), "proposalId": proposal, "authority": long(), "reason": long(), "decidedAt": 1,
        "decision": "rejected" if ending == "rejected" else "approved", "policyHash": long(),
        "trace": [{"rule": long(), "source": "s", "answer": "approve", "decisive": True}],
    }  # fmt: skip
    if ending == "rejected":
        yield HumanTimedOut(at=next(clock), proposal_id=proposal, deadline=1)
        yield made(DecisionMade, at=next(clock), proposal_id=proposal, decision=decision)
        return
    decision["approvedScope"] = {"allowedPaths": ["a.*"]}
    yield made(DecisionMade, at=next(clock), proposal_id=proposal, decision=decision)
    for number in range(2):
        wanted = {"id": f"{proposal}-{number}", "type": long(), "params": {}, "actionId": "a", "nodePath": "n"}
        asked = {"at": next(clock), "proposal_id": proposal, "idempotent": True, "attempt": 1, "deadline": 1}
        yield made(EffectRequested, requirement=wanted, **asked)
        error = {"code": long(), "message": long(), **ERROR_REST}
        yield made(
            EffectRetried,
            at=next(clock),
            proposal_id=proposal,
            requirement_id=wanted["id"],
            error=error,
            failures=1,
            due=1,
        )
        result = {"value": 1} if number else {"error": error}
        yield made(
            EffectFulfilled, at=next(clock), proposal_id=proposal, requirement_id=wanted["id"], result=result, attempt=2
        )
    world = f"world of {proposal}"
    ended = {"proposal_id": proposal, "world_id": world, "parent": "genesis", "branch": branch}
    if ending == "completed":
        yield _world(next(clock), world, "genesis", proposal, branch, 1)
        yield ProposalCompleted(at=next(clock), **ended)
        return
    error = {"code": long(), "message": long(), **ERROR_REST}
    yield _world(next(clock), world, "genesis", proposal, branch, 1, outcome="failed", error=error)
    yield made(ProposalFailed, at=next(clock), error=error, **ended)


def _leases(clock, name, long) -> Iterator[Event]:
    agent = long()
    asked = {"agent_id": agent, "session_id": long(), "cause": "request"}
    lease = {"leaseId": "l1", "token": 1, "predicate": "MUTATES", "resource": f"FILE:/{long()}"}
    yield made(
        VerdictGiven, at=next(clock), verdict_id="v1", request_id="r1", status="Granted", leases=[lease], **asked
    )
    yield made(VerdictGiven, at=next(clock), verdict_id="v2", request_id="r2", status="Wait", queued=True, **asked)
    yield made(VerdictGiven, at=next(clock), verdict_id="v3", request_id="r3", status="Die", **asked)
    yield RequestWithdrawn(at=next(clock), request_id="r2", reason="timeout")
    run = long()
    yield RunOpened(
        at=next(clock), run_id=run, agent_id=agent, session_id="s", kind="python", mode="strict", declared=[],
        verdict_id="v1", lease_ids=["l1"], worker=long(),
    )  # fmt: skip
    violation = {
        "predicate": "MUTATES", "resource": f"FILE:/{long()}", "depth": "hook", "blocked": True, "message": long(),
        "declared": [],
    }  # fmt: skip
    yield made(RunViolated, at=next(clock), run_id=run, violation=violation)
    yield RunClosed(at=next(clock), run_id=run, outcome=long())
    asked_by = {"proposal_id": "p3", "requirement_id": "e", "reason": long()}
    yield EffectInDoubt(at=next(clock), **asked_by)
