"""Operations on offered effects: list; claim, heartbeat and complete, by which remote workers perform them.

A claim belongs to the verified actor; a completion by another one is refused and recorded. A request that waits for an
effect holds no thread. Effects in doubt are listed for workers whose handlers look them up, and any of them reports.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from fastapi import Query, Request, Response
from msgspec import structs

from world.read_models.live.offered_effects import offered_effects
from world.state.effect_claim import EffectClaim, EffectDoubt, EffectReport, UnreadableDoubt, read_form
from world.state.proposal import Proposal
from worldprotocol.api.callers.request_keys import check_key
from worldprotocol.api.host import in_doubt
from worldprotocol.server.bodies import ClaimedEffect, EffectResultToRecord, EffectsToClaim, FoundEffect
from worldprotocol.server.call import Authorized, Call, Key, answer
from worldprotocol.server.log_watch import OFFERS
from worldprotocol.server.operation_table import handles

Wait = Annotated[float, Query(ge=0, le=3_600, description="Seconds to wait for an effect; the server limits them.")]

Types = Annotated[list[str], Query(alias="type", max_length=1_000, description="Type of effects, once or more.")]


@handles("effects.list")
async def list_effects(call: Authorized) -> Response:
    """List the effects that wait for workers, are claimed, or are in doubt, and all that are in doubt."""
    view = call.view

    def run() -> dict[str, Any]:
        return {"effects": [one.to_wire() for one in offered_effects(view)], "inDoubt": in_doubt(view)}

    return answer(await call.run(run))


@handles("effects.claim")
async def claim_effect(
    call: Authorized, request: Request, body: EffectsToClaim, wait: Wait = 0, idempotency_key: Key = None
) -> Response:
    """Claim the effect that was offered first; `claim` is null where none is offered within the time to wait."""
    key = None if idempotency_key is None else check_key(idempotency_key)
    attempt = partial(
        call.realm.claim_effect,
        body.types,
        worker=body.worker,
        workspaces=tuple(body.workspaces),
        proposal_id=body.proposalId,
        key=key,
    )
    seconds = min(wait, call.service.config.max_wait_s)
    claim = await call.run(attempt)
    if claim is None and seconds > 0:
        claim = await _waited(call, request, attempt, seconds)
    return _rendered(call, claim)


async def _waited(call: Call, request: Request, attempt: partial[EffectClaim | None], seconds: float) -> Any:
    """Return a claim as soon as an effect is offered, None after a time or where the caller is gone.

    Raises:
        TooManyRequestsError: too many requests wait.
    """
    service, log_watch, realm = call.service, call.hosted.log_watch, call.hosted.realm
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    with call.waits, log_watch.waiting(OFFERS) as changed:
        while True:
            changed.clear()
            if await request.is_disconnected():
                return None  # nothing is claimed for a caller that is gone
            claim = await call.run(attempt)
            left = end - loop.time()
            if claim is not None or left <= 0 or log_watch.is_closed:
                return claim
            pause = min(left, await service.threads.run(partial(realm._next_offer_s, left)))
            try:
                async with asyncio.timeout(pause):
                    await changed.wait()
            except TimeoutError:
                continue


def _rendered(call: Call, claim: EffectClaim | None) -> Response:
    """Return a claim, the trace of its proposal, and the present time with which its deadline is compared."""
    wire: dict[str, Any] = {"claim": None if claim is None else claim.to_wire(), "now": call.service.clock.now_ms()}
    known = None if claim is None else call.hosted.realm.realm().proposals.get(claim.proposal_id)
    recorded = None if known is None else (known.submitted.trace or {}).get("traceparent")
    return answer(wire | {"trace": None if recorded is None else {"traceparent": recorded}})


def _claim_of_caller(call: Call, wire: dict[str, Any]) -> EffectClaim:
    """Return the claim that a body names, as one of the caller."""
    return structs.replace(read_form(EffectClaim, wire), subject=call.actor_id)


@handles("effects.heartbeat")
async def extend_claim(call: Authorized, body: ClaimedEffect) -> Response:
    """Extend a claim of the caller by the time limit of its effect from now."""
    realm, claim = call.realm, _claim_of_caller(call, body.claim)
    return _rendered(call, await call.run(lambda: realm.heartbeat_effect(claim)))


@handles("effects.complete")
async def complete_effect(call: Authorized, body: EffectResultToRecord) -> Response:
    """Record the result of an effect that the caller claimed; a repetition changes nothing."""
    return await completed(call, body)


async def completed(
    call: Call, body: EffectResultToRecord, check: Callable[[EffectClaim], None] = lambda _: None
) -> Response:
    """Record the result of a claim of the caller, and return the status of its proposal.

    Args:
        call: the request.
        body: the claim and its result.
        check: refuses claims, in the thread that records the result.
    """
    realm, claim = call.realm, _claim_of_caller(call, body.claim)
    performed = read_form(EffectReport, body.report).performed

    def run() -> Proposal:
        check(claim)
        return realm.complete_effect(claim, performed)

    proposal = await call.run(run)
    return answer({"proposalId": proposal.proposal_id, "status": proposal.status})


@handles("effects.doubts")
async def list_doubts(call: Authorized, types: Types) -> Response:
    """List the effects in doubt, of types that workers perform, that a worker without a workspace can look up.

    Those of which a worker cannot be given what it needs are named in ``unreadable``, with the reason.
    """
    realm = call.realm

    def run() -> dict[str, Any]:
        found = realm._claims.doubts(types)
        doubts = [one.to_wire() for one in found if isinstance(one, EffectDoubt)]
        return {"doubts": doubts, "unreadable": [one.to_wire() for one in found if isinstance(one, UnreadableDoubt)]}

    return answer(await call.run(run))


@handles("effects.found")
async def record_found(call: Authorized, body: FoundEffect) -> Response:
    """Record the result of an effect in doubt that the caller looked up; a repetition changes nothing."""
    realm, doubt = call.realm, read_form(EffectDoubt, body.doubt)
    performed = read_form(EffectReport, body.report).performed
    proposal = await call.run(lambda: realm._claims.found(doubt, performed))
    return answer({"proposalId": proposal.proposal_id, "status": proposal.status})
