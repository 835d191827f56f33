"""Operations that prove: receipts by id, and that the log only grew."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import DecisionMade, ProposalSubmitted
from world.events.run_events import RunOpened
from world.read_models.decoding import decoded
from worldprotocol.api.callers.keyed import proposal_of_intent
from worldprotocol.export.proofs.receipt import Subject, make_consistency, make_receipt
from worldprotocol.server.call import Authorized, Call
from worldprotocol.server.operations.registry import handles

Kind = Literal["proposal", "intent", "decision", "world", "verdict", "run"]
Size = Annotated[int | None, Query(ge=1, le=2**53)]


@handles("receipts.find")
async def find_receipt(
    call: Authorized, kind: Kind, subject_id: Annotated[str, Path(min_length=1, max_length=1_000)]
) -> Response:
    """Return the receipt of a proposal, intent, decision, world, verdict or run by its id."""

    def run() -> bytes:
        log = call.hosted.realm.log
        subject = _subject(call, kind, subject_id)
        if any(is_hidden for _, is_hidden in call.visibility.events([log.event_at(subject.position)])):
            raise RefusedError(ErrorCode.RIGHT_MISSING, f"Event {subject.position} is hidden from the caller.")
        return make_receipt(log, subject, call.hosted.checkpoint(None))

    return Response(await call.run(run), 200, {"Cache-Control": "no-store"}, "application/json")


def _subject(call: Call, kind: Kind, name: str) -> Subject:
    """Return the event that is the evidence of something.

    Raises:
        RefusedError: ``NOT_FOUND``, ``UNKNOWN_WORLD``.
    """
    realm = call.hosted.realm
    if kind == "world":
        return Subject(kind, name, realm.archive.world(name).position)
    if kind == "verdict":
        for row in realm.archive.rows("verdict", {"of_verdict": name}):
            return Subject(kind, name, int(row[0]))
    elif kind == "run":
        for logged in realm.log.stream(f"run:{name}", limit=1):
            if logged.topic == RunOpened.TOPIC:
                return Subject(kind, name, logged.position)
    elif kind == "decision":
        for logged in realm.log.read(topics=[DecisionMade.TOPIC]):
            event = decoded(logged)
            if isinstance(event, DecisionMade) and event.decision.decision_id == name:
                return Subject(kind, name, logged.position)
    else:
        carrier = proposal_of_intent(realm, name) if kind == "intent" else None
        stream = carrier.proposal_id if carrier is not None else name
        for logged in realm.log.stream(stream, limit=1) if carrier is not None or kind == "proposal" else ():
            if logged.topic == ProposalSubmitted.TOPIC:
                return Subject(kind, name, logged.position)
    raise RefusedError(ErrorCode.NOT_FOUND, f"The log has no {kind} {name[:80]!r}.")


@handles("proofs.consistency")
async def prove_consistency(
    call: Authorized,
    first: Annotated[int, Query(alias="from", ge=1, le=2**53, description="Number of events of the older tree.")],
    second: Annotated[Size, Query(alias="to", description="Of the newer tree; absent, of the newest.")] = None,
) -> Response:
    """Return the proof that the first events of the log are the beginning of the log with more events."""

    def run() -> bytes:
        checkpoint = call.hosted.checkpoint
        return make_consistency(call.hosted.realm.log, checkpoint(first), checkpoint(second))

    return Response(await call.run(run), 200, {"Cache-Control": "no-store"}, "application/json")
