"""Repeated requests: the same key gives the same answer and one event, and an answer binds to what was shown."""

from __future__ import annotations

import base64
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.server.examples import EXAMPLES
from tests.server.served import ORDER, PATH, Served
from tests.support.patience import until
from world.events.access_events import RightGranted, RightRevoked, TokenRevoked
from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectResolved, ExecutionCancelled
from world.events.lease_events import (
    KeyRegistered,
    KeyRevoked,
    LeaseRenewed,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.proposal_events import HumanAnswered, ProposalSubmitted
from world.events.realm_events import ActorBound, ActorRegistered, BranchCreated, BranchSwitched
from worldprotocol.server.operation_table import OPERATIONS

pytestmark = pytest.mark.slow


def order(number: str, kind: str = "order.place") -> dict[str, Any]:
    scope = {"allowedPaths": [f"orders.{number}"]}
    return ORDER | {"type": kind, "input": {"item": "tea", "number": number}, "scopeProposal": scope}


def waiting(served: Served, number: str) -> str:
    name: str = served.submit("bot", order(number)).json()["proposalId"]
    return name


def posted(served: Served, actor: str, path: str, key: str | None, body: dict[str, Any]) -> httpx.Response:
    with served.client(actor) as client:
        return client.post(f"{PATH}{path}", json=body, headers={} if key is None else {"Idempotency-Key": key})


def keyed(served: Served, kind: type, key: str) -> int:
    """Return how many events of a kind have a key."""
    with served.place.realm() as realm:
        found: list[Any] = [event for _, event in realm.events() if isinstance(event, kind)]
    return sum(event.verified is not None and event.verified.key == key for event in found)


def conflicts(answer: httpx.Response) -> bool:
    return (answer.status_code, answer.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")


@dataclass(frozen=True)
class Repeated:
    """A request that is sent again.

    Args:
        actor: who sends it.
        path: below the realm.
        body: its body.
        kind: the event that holds its key; None where repetition needs none.
        events: how many such events it records.
        another: bodies that are other requests.
        intruder: an actor that may send such requests, and uses the same key.
    """

    actor: str
    path: str
    body: dict[str, Any]
    kind: type | None = None
    events: int = 1
    another: tuple[dict[str, Any], ...] = ()
    intruder: str | None = None


def _answer(served: Served) -> Repeated:
    path = f"/proposals/{waiting(served, 't1')}:answer"
    body = {"choice": "approve", "reason": "good"}
    return Repeated("ann", path, body, HumanAnswered, 1, ({"choice": "reject", "reason": "good"},), "bob")


def _cancel(served: Served) -> Repeated:
    name = served.submit("kid", order("t2", "order.ship")).json()["proposalId"]
    return Repeated("ops", f"/proposals/{name}:cancel", {"reason": "over"}, ExecutionCancelled, 1, ({"reason": "no"},))


def _settle(served: Served) -> Repeated:
    name = served.submit("kid", order("t3", "order.send")).json()["proposalId"]
    claimed(served, "pigeon.send", f"settle-{name}")  # lapses after 1 ms, and it is unknown whether it was sent
    with served.client("ops") as client:
        until(lambda: client.get(f"{PATH}/effects").json()["effects"][-1]["state"] == "in doubt")
    body = {"choice": "happened", "reason": "it was seen", "value": "sent"}
    another = ({**body, "choice": "fail"}, {**body, "reason": "it was heard"})
    return Repeated("ops", f"/proposals/{name}:settle", body, EffectResolved, 1, another, "all")


def _switch(served: Served) -> Repeated:
    assert posted(served, "ops", "/branches", None, {"name": "t13"}).status_code == 201
    assert posted(served, "ops", "/branches:switch", None, {"name": "t13"}).status_code == 200
    return Repeated("ops", "/branches:switch", {"name": "main"}, BranchSwitched, 1, ({"name": "t13"},), "all")


def lease(served: Served, name: str, *, actor: str = "kid", **more: Any) -> dict[str, Any]:
    """Acquire a lease and return the answer."""
    body = {"resources": [f"FILE:/{name}"], "sessionId": f"s-{name}", **more}
    answer = posted(served, actor, "/leases", None, body)
    assert answer.status_code in (200, 202), answer.text
    found: dict[str, Any] = answer.json()
    return found


def held(served: Served, name: str) -> list[str]:
    return [one["leaseId"] for one in lease(served, name)["leases"]]


def _acquire(served: Served) -> Repeated:
    body = {"resources": ["FILE:/a1", "FILE:/a2"], "sessionId": "s-acquire", "ttlMs": 60_000}
    another = (
        {**body, "resources": ["FILE:/a1"]},
        {**body, "sessionId": "s-other"},
        {**body, "ttlMs": 50_000},
        {**body, "predicate": "CONSUMES"},
    )
    return Repeated("kid", "/leases", body, VerdictGiven, 1, another, "bot")


def _heartbeat(served: Served) -> Repeated:
    ids = [*held(served, "h1"), *held(served, "h1/below")]
    body = {"leaseIds": ids[:1], "sessionId": "s-h1", "ttlMs": 50_000}
    another = ({**body, "leaseIds": ids[1:]}, {**body, "ttlMs": 40_000})
    return Repeated("kid", "/leases:heartbeat", body, LeaseRenewed, 1, another, "bot")


def _release(served: Served) -> Repeated:
    body = {"leaseIds": held(served, "r1"), "sessionId": "s-r1"}
    another = ({**body, "leaseIds": held(served, "r2")}, {**body, "sessionId": "s-r2"})
    return Repeated("kid", "/leases:release", body, LeasesReleased, 1, another, "bot")


def _revoke(served: Served) -> Repeated:
    body = {"leaseIds": held(served, "v1"), "reason": "over"}
    another = ({**body, "leaseIds": held(served, "v2")}, {**body, "reason": "another"})
    return Repeated("ops", "/leases:revoke", body, LeasesRevoked, 1, another, "all")


def _register(_: Served) -> Repeated:
    body = {"actorId": "t15", "kind": "agent", "name": "T", "binding": {"kind": "auto_approve"}}
    another = ({**body, "kind": "human"}, {**body, "actorId": "t16"}, {**body, "binding": None})
    return Repeated("ops", "/actors", body, ActorRegistered, 1, another, "all")


def _bind(served: Served) -> Repeated:
    assert posted(served, "ops", "/actors", None, {"actorId": "t17", "kind": "agent"}).status_code == 200
    body = {"binding": {"kind": "auto_approve"}}
    another = ({"binding": {"kind": "hitl", "ask": ["ann"]}},)
    return Repeated("ops", "/actors/t17:bind", body, ActorBound, 1, another, "all")


def _grant(_: Served) -> Repeated:
    body = {"actorId": "bot", "right": "reader", "redaction": ["topic=key.*"]}
    another = ({**body, "right": "auditor"}, {**body, "redaction": None})
    return Repeated("ops", "/rights", body, RightGranted, 1, another, "all")


def _revoke_right(served: Served) -> Repeated:
    assert posted(served, "ops", "/rights", None, {"actorId": "bot", "right": "worker"}).json()["granted"]
    body = {"actorId": "bot", "right": "worker", "reason": "over"}
    return Repeated("ops", "/rights:revoke", body, RightRevoked, 1, ({**body, "reason": "another"},))


def _revoke_token(served: Served) -> Repeated:
    token = posted(served, "ops", "/tokens", None, {"actorId": "bot"}).json()["tokenId"]
    return Repeated("ops", f"/tokens/{token}:revoke", {"reason": "over"}, TokenRevoked, 1, ({"reason": "another"},))


PUBLIC = base64.b64encode(bytes(range(32))).decode()
OTHER = base64.b64encode(bytes(range(1, 33))).decode()


def _key(_: Served) -> Repeated:
    body = {"agentId": "bot", "publicKey": PUBLIC}
    return Repeated("ops", "/keys", body, KeyRegistered, 1, ({"agentId": "kid", "publicKey": PUBLIC},))


def _revoke_key(served: Served) -> Repeated:
    key = posted(served, "ops", "/keys", None, {"agentId": "bot", "publicKey": OTHER}).json()["keyId"]
    return Repeated("ops", f"/keys/{key}:revoke", {"reason": "over"}, KeyRevoked, 1, ({"reason": "another"},))


def _withdraw(served: Served) -> Repeated:
    lease(served, "w0")  # so that kid is older than the holder, and waits
    lease(served, "w1", actor="all", ttlMs=600_000)
    queued = lease(served, "w1", actor="kid", queue=True)
    assert queued["queued"]
    body = {"after": queued["after"]}
    path = f"/leases/requests/{queued['requestId']}:withdraw"
    return Repeated("kid", path, body, RequestWithdrawn, 1, ({"after": queued["after"] - 1},))


def claimed(served: Served, kind: str, key: str) -> dict[str, Any]:
    body = {"worker": "mule-1", "types": [kind]}
    found = posted(served, "mule", "/effects:claim", key, body).json()["claim"]
    assert found is not None
    claim: dict[str, Any] = found
    return claim


def _claim(served: Served) -> Repeated:
    served.submit("kid", order("t4", "order.ship"))
    body = {"worker": "mule-1", "types": ["cart.ship"]}
    return Repeated("mule", "/effects:claim", body, EffectClaimed, 1, (), "yak")


def _extend(served: Served) -> Repeated:
    served.submit("kid", order("t5", "order.ship"))
    return Repeated("mule", "/effects:heartbeat", {"claim": claimed(served, "cart.ship", "extend-claim")})


def _complete(served: Served) -> Repeated:
    served.submit("kid", order("t6", "order.ship"))
    body = {"claim": claimed(served, "cart.ship", "complete-claim"), "report": {"result": {"value": "shipped"}}}
    return Repeated("mule", "/effects:complete", body)


def _found(served: Served) -> Repeated:
    name = served.submit("kid", order("t14", "order.send")).json()["proposalId"]
    claimed(served, "pigeon.send", f"found-{name}")
    with served.client("mule") as client:

        def doubts() -> list[dict[str, Any]]:
            listed = client.get(f"{PATH}/effects/doubts", params={"type": "pigeon.send"}).json()["doubts"]
            return [one for one in listed if one["proposalId"] == name]

        until(lambda: bool(doubts()))
        [doubt] = doubts()
    return Repeated("mule", "/effects:found", {"doubt": doubt, "report": {"result": {"value": "seen"}}})


def _cancel_job(served: Served) -> Repeated:
    job = posted(served, "aud", "/verify", "cancelled-job", {}).json()["jobId"]
    return Repeated("aud", f"/jobs/{job}:cancel", {})


SUBMITTING = ["submit", "order.place", "--actor", "kid", "--input", '{"item": "tea"}', "--json"]

REPEATED: dict[str, Callable[[Served], Repeated]] = {
    "intents.submit": lambda _: Repeated("kid", "/intents", order("t7"), ProposalSubmitted, 1, (order("t8"),), "bot"),
    "events.project": lambda _: Repeated(
        "kid",
        "/events",
        {"kind": "api", "eventId": "mail-t9", "payload": {"item": "tea"}},
        ProposalSubmitted,
        1,
        ({"kind": "api", "eventId": "mail-t10", "payload": {"item": "tea"}},),
        "bot",
    ),
    "proposals.answer": _answer,
    "proposals.cancel": _cancel,
    "proposals.settle": _settle,
    "branches.create": lambda _: Repeated(
        "ops", "/branches", {"name": "t11"}, BranchCreated, 1, ({"name": "t12"},), "all"
    ),
    "branches.switch": _switch,
    "leases.acquire": _acquire,
    "leases.withdraw": _withdraw,
    "leases.heartbeat": _heartbeat,
    "leases.release": _release,
    "leases.revoke": _revoke,
    "actors.register": _register,
    "actors.bind": _bind,
    "rights.grant": _grant,
    "rights.revoke": _revoke_right,
    "tokens.revoke": _revoke_token,
    "keys.register": _key,
    "keys.revoke": _revoke_key,
    "policies.ask": lambda _: Repeated("aud", "/policies:ask", {"actor": "kid", "action": "order.place"}),
    "effects.claim": _claim,
    "effects.heartbeat": _extend,
    "effects.complete": _complete,
    "effects.found": _found,
    "verify.start": lambda _: Repeated("aud", "/verify", {}),
    "recheck.start": lambda _: Repeated("aud", "/recheck", {"upto": 3}),
    "whatif.start": lambda _: Repeated("aud", "/whatif", {}),
    "backtest.start": lambda _: Repeated("aud", "/backtest", EXAMPLES["backtest.start"]),
    "jobs.cancel": _cancel_job,
    "commands.run": lambda _: Repeated("kid", "/commands", {"arguments": SUBMITTING}, ProposalSubmitted),
}
"""A request of each operation that writes."""

GROWS = {
    "intents.submit": "each key is a submission",
    "events.project": "each key is a submission",
    "commands.run": "each key is a submission, by this command",
    "leases.acquire": "each is a verdict, on a lease of its own",
    "leases.heartbeat": "each moves the end of the lease, until its longest hold time (KP-4b)",
}
"""Operations that record again with another key, and what that means; of all others the log grows once."""

ELSEWHERE = {
    "calls.begin": "each key is a call: it proposes, or claims, once",
    "calls.end": "once for each run: it completes the effect",
    "calls.extend": "ten times in a time limit at most, and each move to another server, which are 100 for a call",
    "calls.report": "as effects.complete",
    "calls.run": "once for each run, and each move to another server, which are 100 for a call",
    "hooks.call": "as calls.begin, calls.report and calls.extend, by the id that the agent gives its call",
    "sessions.end": "once for each session that began, and each call of it",
    "sessions.renew": "once for each session whose program called, again after each end; 1,000 moves of a session",
    "policies.adopt": "once for each version",
    "policies.retire": "once for each version",
    "policies.shadow": "once for each version",
    "tokens.create": "each is a token",
}
"""Operations whose repetition is tried in ``tests/agents`` and other modules here, and how often each records."""


def test_every_operation_that_writes_has_a_repeated_request() -> None:
    assert set(REPEATED) | set(ELSEWHERE) == {one.name for one in OPERATIONS.values() if one.method == "POST"}


def key_of(event: Any) -> str | None:
    """Return the key of the request that an event records."""
    if isinstance(event, EffectClaimed):
        return event.key
    return None if event.verified is None else event.verified.key


@pytest.mark.parametrize("name", REPEATED)
def test_a_repeated_request_has_one_effect(served: Served, name: str) -> None:
    case, key = REPEATED[name](served), f"key-{name}"

    def size() -> int:
        with served.place.realm() as realm:
            return realm.log.head().size

    first = posted(served, case.actor, case.path, key, case.body)
    assert first.status_code in (200, 201, 202), first.text
    after = size()
    for _ in range(2):
        again = posted(served, case.actor, case.path, key, case.body)
        assert again.status_code in (200, 201, 202), again.text
        if case.kind is not None and name != "commands.run":  # what it prints says that it was submitted before
            assert {**again.json(), "after": 0, "now": 0} == {**first.json(), "after": 0, "now": 0}
    assert size() == after
    if case.kind is not None:
        with served.place.realm() as realm:
            found: list[Any] = [event for _, event in realm.events() if isinstance(event, case.kind)]
        assert sum(key_of(one) == key for one in found) == case.events
    for body in case.another:
        assert conflicts(posted(served, case.actor, case.path, key, body)), body
    assert size() == after
    if case.intruder is not None:  # the keys of another actor are its own
        answer = posted(served, case.intruder, case.path, key, case.body)
        assert answer.json().get("code") != "IDEMPOTENCY_CONFLICT"
        own = answer.json().get("proposalId")
        assert own is None or "proposals" in case.path or own != first.json()["proposalId"]
    after = size()
    for number in range(2):
        posted(served, case.actor, case.path, f"key-{name}-{number}", case.body)
    assert (size() > after) == (name in GROWS)


def test_a_repeated_answer_is_recorded_once_also_at_once(served: Served) -> None:
    path, body = f"/proposals/{waiting(served, 'r1')}:answer", {"choice": "approve", "reason": "good"}
    with ThreadPoolExecutor(6) as pool:
        asked = [pool.submit(posted, served, "ann", path, "answer-1", body) for _ in range(6)]
        answers = [one.result() for one in asked]
    answers.append(posted(served, "ann", path, "answer-1", body))
    assert {(one.status_code, one.json()["status"]) for one in answers} == {(200, "completed")}
    assert keyed(served, HumanAnswered, "answer-1") == 1
    assert conflicts(posted(served, "ann", path, "answer-1", {"choice": "reject", "reason": "good"}))
    assert posted(served, "bob", path, "answer-1", body).json()["code"] == "NOT_WAITING"  # his own key
    assert posted(served, "ann", path, "answer-2", body).json()["code"] == "NOT_WAITING"
    assert posted(served, "ann", path, "no key!", body).json()["code"] == "INVALID_VALUE"


def test_a_repeated_cancellation_is_recorded_once(served: Served) -> None:
    name = served.submit("kid", order("r2", "order.ship")).json()["proposalId"]
    path, body = f"/proposals/{name}:cancel", {"reason": "over"}
    answers = [posted(served, "ops", path, "cancel-1", body) for _ in range(3)]
    assert {(one.status_code, one.json()["status"]) for one in answers} == {(200, "failed")}
    assert keyed(served, ExecutionCancelled, "cancel-1") == 1
    assert conflicts(posted(served, "ops", path, "cancel-1", {"reason": "another"}))
    assert posted(served, "ops", path, "cancel-2", body).json()["code"] == "NOT_RUNNING"
    assert keyed(served, EffectResolved, "cancel-1") == 0


def test_a_repeated_branch_or_switch_is_recorded_once(served: Served) -> None:
    created = [posted(served, "ops", "/branches", "branch-1", {"name": "plan"}) for _ in range(3)]
    head = created[0].json()["head"]
    assert [(one.status_code, one.json()) for one in created] == [(201, {"name": "plan", "head": head})] * 3
    assert keyed(served, BranchCreated, "branch-1") == 1
    assert conflicts(posted(served, "ops", "/branches", "branch-1", {"name": "other"}))
    assert posted(served, "ops", "/branches", None, {"name": "plan"}).json()["code"] == "BRANCH_EXISTS"
    asked = (("plan", "switch-1"), ("main", "switch-2"), ("plan", "switch-1"))
    answers = [posted(served, "ops", "/branches:switch", key, {"name": name}) for name, key in asked]
    assert [(one.status_code, one.json()["active"]) for one in answers] == [(200, name) for name, _ in asked]
    assert answers[2].json() == answers[0].json()
    assert keyed(served, BranchSwitched, "switch-1") == 1
    with served.place.realm() as realm:
        assert realm.realm().active == "main"  # the repetition of the first request switched nothing


def entry_of(served: Served, actor: str, name: str) -> dict[str, Any]:
    with served.client(actor) as client:
        [found] = [one for one in client.get(f"{PATH}/inbox").json()["inbox"] if one["proposalId"] == name]
    entry: dict[str, Any] = found
    return entry


def test_an_answer_binds_to_what_was_shown(served: Served) -> None:
    name, other = waiting(served, "s1"), waiting(served, "s2")
    shown = entry_of(served, "ann", name)
    assert entry_of(served, "bob", name)["shown"] == shown["shown"]  # the same for everybody, at any time
    assert entry_of(served, "ann", other)["shown"] != shown["shown"]
    assert served.submit("kid", order("elsewhere")).json()["status"] == "completed"
    assert entry_of(served, "ann", name)["shown"] == shown["shown"]  # the head moved; what would be done did not
    assert served.submit("kid", order("s1") | {"input": {"item": "cake", "number": "s1"}}).status_code == 200
    changed = entry_of(served, "ann", name)
    assert changed["preview"]["changes"] == [{"path": "orders.s1", "before": "cake", "after": "tea"}]
    path, body = f"/proposals/{name}:answer", {"choice": "approve", "shown": shown["shown"]}
    refused = posted(served, "ann", path, None, body)
    assert (refused.status_code, refused.json()["code"]) == (409, "SHOWN_CHANGED")
    crossed = posted(served, "ann", f"/proposals/{other}:answer", None, body | {"shown": changed["shown"]})
    assert crossed.json()["code"] == "SHOWN_CHANGED"
    body["shown"] = changed["shown"]
    asked = posted(served, "bob", path, None, {"choice": "ask", "reason": "why?"})
    assert asked.status_code == 202
    assert posted(served, "ann", path, None, body).json()["code"] == "SHOWN_CHANGED"  # a question was asked meanwhile
    body["shown"] = entry_of(served, "ann", name)["shown"]
    for _ in range(2):  # the repetition finds the answer, although nothing is shown any more
        assert posted(served, "ann", path, "shown-1", body).json()["status"] == "completed"
    with served.place.realm() as realm:
        answers = [
            one.answer for _, one in realm.events() if isinstance(one, HumanAnswered) and one.proposal_id == name
        ]
    assert [(one.choice, one.shown) for one in answers] == [("ask", None), ("approve", body["shown"])]
