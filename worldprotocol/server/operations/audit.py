"""Operations that prove: receipts of events and by id, and that the log only grew; as JSON or as COSE (RFC 9942)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal

from fastapi import Header, Path, Query, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import DecisionMade, ProposalSubmitted
from world.events.run_events import RunOpened
from world.read_models.decoding import decoded
from worldprotocol.api.callers.keyed import proposal_of_intent
from worldprotocol.export.proofs.note import first_key
from worldprotocol.export.proofs.receipt import EVENT, Subject, make_consistency, make_receipt
from worldprotocol.server.call import Authorized, Call
from worldprotocol.server.operation_table import handles

Kind = Literal["proposal", "intent", "decision", "world", "verdict", "run"]
Size = Annotated[int | None, Query(ge=1, le=2**53)]
Accept = Annotated[str, Header(alias="Accept", include_in_schema=False)]  # OpenAPI describes it by the media types

HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept"}


@handles("receipts.read")
async def read_receipt(
    call: Authorized, position: Annotated[int, Path(ge=1, le=2**53)], accept: Accept = ""
) -> Response:
    """Return the receipt of an event: its content, and the proof that it is in the tree of a checkpoint.

    With `Accept: application/cose` it is a COSE Receipt (RFC 9942), for which the realm needs a key for checkpoints.
    """
    return await _receipt(call, lambda: Subject(EVENT, str(position), position), accept)


@handles("receipts.find")
async def find_receipt(
    call: Authorized,
    kind: Kind,
    subject_id: Annotated[str, Path(min_length=1, max_length=1_000)],
    accept: Accept = "",
) -> Response:
    """Return the receipt of a proposal, intent, decision, world, verdict or run by its id.

    With `Accept: application/cose` it is a COSE Receipt (RFC 9942), for which the realm needs a key for checkpoints.
    """
    return await _receipt(call, lambda: _subject(call, kind, subject_id), accept)


async def _receipt(call: Call, find: Callable[[], Subject], accept: str) -> Response:
    def run() -> Response:
        log = call.hosted.realm.log
        subject = find()
        if any(is_hidden for _, is_hidden in call.visibility.events([log.event_at(subject.position)])):
            raise RefusedError(ErrorCode.RIGHT_MISSING, f"Event {subject.position} is hidden from the caller.")
        checkpoint, keys = call.hosted.signed(None)
        if not _takes_cose(accept):
            return Response(make_receipt(log, subject, checkpoint), 200, HEADERS, "application/json")
        from worldprotocol.export.proofs.cose import MEDIA_TYPE, cose_receipt

        return Response(cose_receipt(log, subject, checkpoint, first_key(keys)), 200, HEADERS, MEDIA_TYPE)

    return await call.run(run)


def _takes_cose(accept: str) -> bool:
    """Return whether a caller accepts COSE, and does not name JSON beside it (RFC 9110 section 12.5.1)."""
    named = {part.partition(";")[0].strip().lower() for part in accept.split(",")}
    return "application/cose" in named and "application/json" not in named


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
        for logged in realm.log.read(topics=[DecisionMade.TOPIC], skip_archived=True):
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
    accept: Accept = "",
) -> Response:
    """Return the proof that the first events of the log are the beginning of the log with more events.

    With `Accept: application/cose` it is a COSE Receipt (RFC 9942), for which the realm needs a key for checkpoints.
    """

    def run() -> Response:
        log, signed = call.hosted.realm.log, call.hosted.signed
        (old, _), (new, keys) = signed(first), signed(second)
        if not _takes_cose(accept):
            return Response(make_consistency(log, old, new), 200, HEADERS, "application/json")
        from worldprotocol.export.proofs.cose import MEDIA_TYPE, cose_consistency

        return Response(cose_consistency(log, old, new, first_key(keys)), 200, HEADERS, MEDIA_TYPE)

    return await call.run(run)
