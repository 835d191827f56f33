"""Operations on leases: list, waits, requests, heartbeat, release, revoke."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import Query, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import KLIS_STREAM
from world.events.lease_events import VerdictGiven
from world.read_models.leases import held, still_blocks, verdict_row, waits
from world.read_models.request_events import events_of_request
from worldprotocol.api.callers.recorded_keys import Says, says_acquire, says_heartbeat, says_release, says_revoke
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.event_forms import event_form
from worldprotocol.server.bodies import Heartbeat, LeaseRequest, Release, Revocation, Withdrawal
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.acting import Key, Wait
from worldprotocol.server.operations.past import At, looked_at, view_at
from worldprotocol.server.operations.proposals import After

Free = Annotated[bool, Query(description="Wait also, where the request died, until what it died of is free.")]


@handles("leases.list")
async def list_leases(call: Authorized, at: At = None) -> Response:
    """List the leases in force, in the order of their fencing tokens."""
    if at is None:
        return answer({"leases": held(call.view.klis, now=call.service.clock.now_ms())})

    def run() -> list[dict[str, Any]]:
        then = looked_at(call, at)
        return held(then.ledger(), now=then.now)

    return answer({"leases": await call.run(run)})


@handles("leases.waits")
async def list_waits(call: Authorized, at: At = None) -> Response:
    """List the requests that wait in the queue, with what each waits for."""

    def run() -> list[dict[str, Any]]:
        ledger = view_at(call, at).klis
        return [
            {
                "requestId": one.request.request_id,
                "agentId": one.request.session.agent_id,
                "sessionId": one.request.session.session_id,
                "since": one.request.since,
                "deadline": one.request.deadline,
                "resources": [
                    {"predicate": triple.predicate.value, "resource": triple.resource.text}
                    for triple in one.request.triples
                ],
                "waitsFor": [
                    {
                        "predicate": conflict.predicate,
                        "resource": conflict.resource,
                        "holder": conflict.holder,
                        "session": conflict.session,
                        "leaseId": conflict.lease_id,
                        "requestId": conflict.request_id,
                    }
                    for conflict in one.conflicts
                ],
                "more": one.more,
            }
            for one in waits(ledger.ledger())
        ]

    return answer({"waits": await call.run(run)})


@handles("leases.held")
async def list_own_leases(call: Authorized) -> Response:
    """List the leases in force of the caller, in the order of their fencing tokens."""
    return answer({"leases": held(call.view.klis, now=call.service.clock.now_ms(), agent=call.actor_id)})


@handles("leases.acquire")
async def acquire(call: Authorized, body: LeaseRequest, idempotency_key: Key = None) -> Response:
    """Request leases, all or none; 200 with the verdict Granted, Wait or Die, 202 where it waits in the queue."""
    if (body.manifest is None) == (not body.resources):
        raise RefusedError(ErrorCode.INVALID_VALUE, "Name `resources`, or give a `manifest` in their place.")
    session = body.sessionId or (None if body.manifest is None else str(body.manifest.get("session_id")))
    manifest = body.manifest or {
        "ver": "1.0",
        "agent_id": call.actor_id,
        "session_id": session or call.realm.new_id(),
        "scope": [{"predicate": body.predicate, "resource": one} for one in body.resources or ()],
    }
    options: dict[str, Any] = {"ttl_ms": body.ttlMs, "queue": body.queue, "wait_ms": body.waitMs}
    options |= {"request_id": body.requestId, "require_signature": body.requireSignature}
    before = call.hosted.realm.realm().position
    verdict = await call.run(
        lambda: call.hosted.request_keys.once(
            call.hosted.realm,
            call.keyed(idempotency_key),
            lambda acting: acting.leases.desk.request(manifest, by=call.actor_id, **options),
            says=says_acquire(manifest, session, body.ttlMs),
            repeated=lambda events: events[0],
        )
    )
    return answer({**_rendered(call, verdict), "after": before}, 202 if verdict.queued else 200)


def _rendered(call: Call, verdict: VerdictGiven) -> dict[str, Any]:
    """Return a verdict as JSON; ``event`` is what the log records of it."""
    agents = call.hosted.realm.realm().klis.agents
    names = dict.fromkeys([verdict.agent_id, *(one.holder for one in verdict.conflicts)])
    return {
        **verdict_row(verdict),
        "priorities": {name: agents[name][0] for name in names if name in agents},
        "event": event_form(verdict),
    }


@handles("leases.request")
async def read_request(
    call: Authorized, request_id: str, after: After = 0, wait: Wait = 0, free: Free = False
) -> Response:
    """Return what became of a request of the caller; `wait` returns it once it does not wait in the queue any more.

    With `free`, a request that died is returned once what it died of is free.
    """
    realm, log_watch = call.hosted.realm, call.hosted.log_watch
    ended: list[tuple[VerdictGiven | None, dict[str, Any]]] = []

    def read() -> dict[str, Any]:
        klis = realm.realm().klis
        if request_id in klis.requests:
            return {"requestId": request_id, "isWaiting": True, "isFree": None, "verdict": None, "withdrawn": None}
        if not ended:  # a request that ended has no further events
            ended.append(_ended(call, request_id, after))
        verdict, found = ended[0]
        died = verdict is not None and verdict.status == "Die"
        return {**found, "isFree": still_blocks(klis, verdict) is None if verdict is not None and died else None}

    def is_done(found: dict[str, Any]) -> bool:
        return not found["isWaiting"] and not (free and found["isFree"] is False)

    await call.run(lambda: _check_own(call, request_id, after))
    found = await call.run(read)
    seconds = min(wait, call.service.config.max_wait_s)
    if not is_done(found) and seconds > 0:
        with call.waits:
            found = await log_watch.wait_until(KLIS_STREAM, read, is_done, seconds)
    return answer(found)


def _check_own(call: Call, request_id: str, after: int) -> None:
    """Refuse to show the request of another caller.

    Raises:
        RefusedError: ``UNKNOWN_REQUEST``.
    """
    for _, event in events_of_request(call.hosted.realm.archive, request_id, after=after):
        if isinstance(event, VerdictGiven) and call.actor_id in (event.agent_id, (event.channel or {}).get("by")):
            return
    raise RefusedError(
        ErrorCode.UNKNOWN_REQUEST,
        f"{call.actor_id!r} has made no request {request_id!r} for leases after event {after}; request them again.",
        request_id=request_id,
    )


def _ended(call: Call, request_id: str, after: int) -> tuple[VerdictGiven | None, dict[str, Any]]:
    """Return the last verdict on a request that does not wait, and what became of it."""
    verdict = withdrawn = None
    for _, event in events_of_request(call.hosted.realm.archive, request_id, after=after):
        if isinstance(event, VerdictGiven):
            verdict = event
        else:
            withdrawn = event.reason
    shown = None if verdict is None else _rendered(call, verdict)
    return verdict, {"requestId": request_id, "isWaiting": False, "verdict": shown, "withdrawn": withdrawn}


@handles("leases.withdraw")
async def withdraw(call: Authorized, request_id: str, body: Withdrawal, idempotency_key: Key = None) -> Response:
    """Take a request of the caller out of the queue; a repetition finds that it does not wait any more."""
    call.keyed(idempotency_key)
    desk = call.realm.leases.desk

    def run() -> bool:
        _check_own(call, request_id, body.after)
        return desk.withdraw(request_id)

    return answer({"requestId": request_id, "withdrawn": await call.run(run)})


@handles("leases.heartbeat")
async def heartbeat(call: Authorized, body: Heartbeat, idempotency_key: Key = None) -> Response:
    """Renew leases of the caller, all or none."""
    ids, holder = body.leaseIds, {"agent_id": call.actor_id, "session_id": body.sessionId}
    renewed = await call.run(
        lambda: call.hosted.request_keys.once(
            call.hosted.realm,
            call.keyed(idempotency_key),
            lambda acting: acting.leases.desk.heartbeat(ids, **holder, ttl_ms=body.ttlMs),
            says=says_heartbeat(ids, body.ttlMs),
            repeated=lambda events: events,
        )
    )
    return answer(
        {
            "leases": [
                {"leaseId": one.lease_id, "expiresAt": one.expires_at, "event": event_form(one)} for one in renewed
            ]
        }
    )


@handles("leases.release")
async def release(call: Authorized, body: Release, idempotency_key: Key = None) -> Response:
    """Release leases of the caller, all or none."""
    ids, session = body.leaseIds, body.sessionId
    says = says_release(call.hosted.realm, ids, session)

    def end(realm: Realm) -> dict[str, str]:
        return realm.leases.desk.release(ids, agent_id=call.actor_id, session_id=session)

    return await _ended_once(call, idempotency_key, (end, says), ids, "Released")


@handles("leases.revoke")
async def revoke(call: Authorized, body: Revocation, idempotency_key: Key = None) -> Response:
    """Revoke leases of any holder; the actor also has to be an administrator of leases."""
    ids, reason = body.leaseIds, body.reason
    says = says_revoke(call.hosted.realm, ids, reason)

    def end(realm: Realm) -> dict[str, str]:
        return realm.leases.desk.revoke(ids, by=call.actor_id, reason=reason)

    return await _ended_once(call, idempotency_key, (end, says), ids, "Revoked")


async def _ended_once(
    call: Call, key: str | None, request: tuple[Callable[[Realm], dict[str, str]], Says], ids: Sequence[str], ended: str
) -> Response:
    """End leases, and return their states; the ledger forgets old ones, which a repeated request ended."""
    end, says = request

    def repeated(_: list[Any]) -> dict[str, str]:
        known = call.hosted.realm.realm().klis.ended
        return {one: known.get(one, ended) for one in ids}

    caller, once = call.keyed(key), call.hosted.request_keys.once
    states = await call.run(lambda: once(call.hosted.realm, caller, end, says=says, repeated=repeated))
    return answer({"states": states})
