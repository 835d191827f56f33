"""Operations that prove: checkpoint and tiles of the Merkle tree, receipts of events, and that the log only grew.

Tiles and bundles of entries are static resources (C2SP tlog-tiles). Tiles hold hashes only, which every reader may
have; bundles hold the texts of events, so they need the right to read all of them. A name that names nothing is not
found, as with files. Receipts are JSON or COSE (RFC 9942).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from msgspec import Meta, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import MediaContent, MediaType, Negotiated, OperationCall, RequestForm, operation
from worldprotocol.operations.declaring import content_version
from worldprotocol.operations.fields import ID, Name

if TYPE_CHECKING:
    from worldprotocol.export.proofs.receipt import Subject

SubjectKind = Literal["proposal", "intent", "decision", "world", "verdict", "run"]
ProofType = Annotated[
    Literal["application/json", "application/cose"],
    Negotiated,
    Meta(description="Media type of the proof; COSE needs a key for checkpoints of the realm."),
]
Size = Annotated[int, Meta(ge=1, le=2**53)]

OCTETS: Final = "application/octet-stream"
_JSON: Final = "application/json"
_COSE: Final = "application/cose"
_PROOFS: Final = (MediaType(_COSE, str, "a COSE Receipt (RFC 9942)"),)
_RECEIPT: Final = MediaContent(media_type=_JSON, data=b'{"worldProtocol":"receipt"}\n')


class ReadCheckpoint(RequestForm, frozen=True, kw_only=True):
    """The newest checkpoint."""


@operation(
    "checkpoint.read",
    "GET /checkpoint",
    "reader auditor",
    example=(
        ReadCheckpoint(),
        MediaContent(
            media_type="text/plain",
            data=b"world-protocol/shop\n7\nW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1tbW1s=\n",
        ),
    ),
)
def read_checkpoint(call: OperationCall, request: ReadCheckpoint) -> MediaContent:
    """Return the newest tree head as a checkpoint (C2SP tlog-checkpoint), signed where a key is configured."""
    checkpoint, _ = call.served.signed(None)
    return MediaContent(media_type="text/plain", data=checkpoint.to_text().encode())


class ReadEntries(RequestForm, frozen=True, kw_only=True):
    """A bundle of entries, by the name of its tile of level 0."""

    tile: str


@operation(
    "tiles.entries",
    "GET /tile/entries/{tile}",
    "reader auditor",
    kind="whole",
    etag=content_version,
    is_immutable=True,
    example=(
        ReadEntries(tile="000"),
        MediaContent(media_type=OCTETS, data=b"256 entries, each after its length as a uint16"),
    ),
)
def read_entries(call: OperationCall, request: ReadEntries) -> MediaContent:
    """Return the entries below a tile of level 0 (C2SP), each after its length; with gzip where that is accepted.

    The entry of an event is the text whose hash is its leaf. A bundle with an event of more than 65,535 bytes is not
    served, because the format cannot hold it; `/log` has its events.
    """
    from worldprotocol.export.proofs.tiles import entry_bundle, read_tile

    return MediaContent(media_type=OCTETS, data=entry_bundle(call.hosted.realm.log, read_tile(request.tile)))


class ReadTile(RequestForm, frozen=True, kw_only=True):
    """A tile, by its level and its name."""

    level: str
    tile: str


@operation(
    "tiles.read",
    "GET /tile/{level}/{tile}",
    "reader auditor",
    etag=content_version,
    is_immutable=True,
    example=(ReadTile(level="0", tile="000"), MediaContent(media_type=OCTETS, data=b"256 hashes of 32 bytes")),
)
def read_tile(call: OperationCall, request: ReadTile) -> MediaContent:
    """Return a tile of the Merkle tree (C2SP).

    It has up to 256 hashes of 32 bytes: `/tile/<L>/<N>` or, where it is not full, `/tile/<L>/<N>.p/<W>`.
    """
    from worldprotocol.export.proofs.tiles import read_level, read_tile

    tile = read_tile(request.tile)
    return MediaContent(
        media_type=OCTETS, data=call.hosted.realm.log.tile(read_level(request.level), tile.index, tile.width)
    )


class ProveGrowth(RequestForm, frozen=True, kw_only=True):
    """Numbers of events of two trees; absent, the second is the newest."""

    first: Annotated[Size, Meta(description="Number of events of the older tree.")] = field(name="from")
    second: Annotated[Size, Meta(description="Of the newer tree; absent, of the newest.")] | None = field(
        name="to", default=None
    )
    media_type: ProofType = _JSON


@operation(
    "proofs.consistency",
    "GET /proof/consistency",
    "reader auditor",
    media=_PROOFS,
    example=(ProveGrowth(first=5), MediaContent(media_type=_JSON, data=b'{"worldProtocol":"consistency"}\n')),
)
def prove_growth(call: OperationCall, request: ProveGrowth) -> MediaContent:
    """Return the proof that the first events of the log are the beginning of the log with more events.

    With `Accept: application/cose` it is a COSE Receipt (RFC 9942), for which the realm needs a key for checkpoints.
    """
    log, signed = call.hosted.realm.log, call.served.signed
    (old, _), (new, keys) = signed(request.first), signed(request.second)
    if request.media_type == _JSON:
        from worldprotocol.export.proofs.receipt import make_consistency

        return MediaContent(media_type=_JSON, data=make_consistency(log, old, new))
    from worldprotocol.export.proofs.cose import MEDIA_TYPE, cose_consistency
    from worldprotocol.export.proofs.note import first_key

    return MediaContent(media_type=MEDIA_TYPE, data=cose_consistency(log, old, new, first_key(keys)))


class ReadReceipt(RequestForm, frozen=True, kw_only=True):
    """The position of an event."""

    position: Size
    media_type: ProofType = _JSON


@operation(
    "receipts.read",
    "GET /receipts/{position}",
    "reader auditor",
    media=_PROOFS,
    example=(ReadReceipt(position=7), _RECEIPT),
)
def read_receipt(call: OperationCall, request: ReadReceipt) -> MediaContent:
    """Return the receipt of an event: its content, and the proof that it is in the tree of a checkpoint.

    With `Accept: application/cose` it is a COSE Receipt (RFC 9942), for which the realm needs a key for checkpoints.
    """
    from worldprotocol.export.proofs.receipt import EVENT, Subject

    return _receipt(call, Subject(EVENT, str(request.position), request.position), request.media_type)


class FindReceipt(RequestForm, frozen=True, kw_only=True):
    """What a receipt is of, by its id."""

    kind: SubjectKind
    subject_id: Name
    media_type: ProofType = _JSON


@operation(
    "receipts.find",
    "GET /receipts/{kind}/{subject_id}",
    "reader auditor",
    media=_PROOFS,
    example=(FindReceipt(kind="proposal", subject_id=ID), _RECEIPT),
)
def find_receipt(call: OperationCall, request: FindReceipt) -> MediaContent:
    """Return the receipt of a proposal, intent, decision, world, verdict or run by its id.

    With `Accept: application/cose` it is a COSE Receipt (RFC 9942), for which the realm needs a key for checkpoints.
    """
    from worldprotocol.export.proofs.receipt import Subject

    found = _position(call, request.kind, request.subject_id)
    return _receipt(call, Subject(request.kind, request.subject_id, found), request.media_type)


def _receipt(call: OperationCall, subject: Subject, media_type: str) -> MediaContent:
    log = call.hosted.realm.log
    if any(is_hidden for _, is_hidden in call.visibility.events([log.event_at(subject.position)])):
        raise RefusedError(ErrorCode.RIGHT_MISSING, f"Event {subject.position} is hidden from the caller.")
    checkpoint, keys = call.served.signed(None)
    if media_type == _JSON:
        from worldprotocol.export.proofs.receipt import make_receipt

        return MediaContent(media_type=_JSON, data=make_receipt(log, subject, checkpoint))
    from worldprotocol.export.proofs.cose import MEDIA_TYPE, cose_receipt
    from worldprotocol.export.proofs.note import first_key

    return MediaContent(media_type=MEDIA_TYPE, data=cose_receipt(log, subject, checkpoint, first_key(keys)))


def _position(call: OperationCall, kind: SubjectKind, name: str) -> int:
    """Return the position of the event that is the evidence of something.

    Raises:
        RefusedError: ``NOT_FOUND``, ``UNKNOWN_WORLD``.
    """
    from world.events.proposal_events import DecisionMade, ProposalSubmitted
    from world.events.run_events import RunOpened
    from world.read_models.decoding import decoded
    from worldprotocol.api.callers.keyed import proposal_of_intent

    realm = call.hosted.realm
    if kind == "world":
        return realm.archive.world(name).position
    if kind == "verdict":
        for row in realm.archive.rows("verdict", {"of_verdict": name}):
            return int(row[0])
    elif kind == "run":
        for logged in realm.log.stream(f"run:{name}", limit=1):
            if logged.topic == RunOpened.TOPIC:
                return logged.position
    elif kind == "decision":
        for logged in realm.log.read(topics=[DecisionMade.TOPIC], skip_archived=True):
            event = decoded(logged)
            if isinstance(event, DecisionMade) and event.decision.decision_id == name:
                return logged.position
    else:
        carrier = proposal_of_intent(realm, name) if kind == "intent" else None
        stream = carrier.proposal_id if carrier is not None else name
        for logged in realm.log.stream(stream, limit=1) if carrier is not None or kind == "proposal" else ():
            if logged.topic == ProposalSubmitted.TOPIC:
                return logged.position
    raise RefusedError(ErrorCode.NOT_FOUND, f"The log has no {kind} {name[:80]!r}.")
