"""Receipts for events and consistency proofs, which can be checked without the log.

A receipt contains the hashed text of an event, its index in the tree, the path to the root (RFC 9162 section 2.1.3)
and a checkpoint. A consistency proof contains two checkpoints and the path between them (2.1.4). Each is one line of
canonical JSON, so that it has only one valid text.

A receipt proves that the log whose key signed the checkpoint has exactly this event at this position, and that the
event has this id. It does not prove that the event was valid under the rules; ``verify`` and ``recheck`` of the
complete log check that. docs/verify_receipt.py checks both kinds without this project. Source: CARD-audit; design
section 2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log import EventLog, LoggedEvent, TreeHead, event_leaf, is_intact, verify_consistency, verify_inclusion
from world.log.merkle import EMPTY_ROOT, HASH_BYTES
from world.log.values import check_name
from world.model.canonical_json import canonical_bytes, canonical_text, read_json
from world.model.identity import content_id, world_id
from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted, read_checkpoint

__all__ = [
    "EVENT",
    "FORMAT",
    "SUBJECTS",
    "Subject",
    "VerifiedProof",
    "changed",
    "check_proof",
    "is_cose",
    "make_consistency",
    "make_receipt",
    "proof_kind",
]

FORMAT: Final = 1
"""Version of the format of receipts and consistency proofs."""

SUBJECTS: Final[Mapping[str, tuple[str, str]]] = {
    "proposal": ("proposal.submitted", "proposalId"),
    "intent": ("proposal.submitted", "intent.intentId"),
    "decision": ("decision.made", "decision.decisionId"),
    "world": ("world.sealed", "worldId"),
    "verdict": ("verdict.given", "verdictId"),
    "run": ("run.opened", "runId"),
}
"""Per kind of subject: the topic of its event, and the field of the state with its id."""

EVENT: Final = "event"
"""Kind of a receipt whose subject is the event at a position."""

_MOST_NODES: Final = 128


@dataclass(frozen=True, slots=True)
class Subject:
    """Subject of a receipt.

    Args:
        kind: a key of ``SUBJECTS``, or ``EVENT``.
        name: the id; for an event, its position in digits.
        position: position of the event in the receipt.
    """

    kind: str
    name: str
    position: int

    @property
    def field(self) -> str:
        """The field of the receipt's event that contains the id."""
        return "position" if self.kind == EVENT else f"state.{SUBJECTS[self.kind][1]}"


@dataclass(frozen=True, slots=True)
class VerifiedProof:
    """Result of the check of a receipt or a consistency proof.

    Args:
        kind: ``receipt`` or ``consistency``.
        checkpoints: the checkpoint of a receipt; the old and the new one of a consistency proof.
        unchecked: names in the signature lines of keys that were not given.
        about: kind, id and field of a receipt's subject.
        event: position, topic and state of a receipt's event.
    """

    kind: str
    checkpoints: tuple[Checkpoint, ...]
    unchecked: tuple[str, ...]
    about: Mapping[str, str] | None = None
    event: Mapping[str, Any] | None = None


def make_receipt(log: EventLog, subject: Subject, checkpoint: Checkpoint) -> bytes:
    """Return the receipt for an event.

    Args:
        log: the log with the event.
        subject: the subject of the receipt.
        checkpoint: a checkpoint of this log, at or after the event.

    Raises:
        RefusedError: ``NO_SUCH_EVENT`` where the checkpoint precedes the event, or the log is shorter than it.
        DamagedLogError: ``SAVED_HEAD_MISMATCH`` where the checkpoint is not of this log's events; ``EVENT_CHANGED``,
            ``TREE_DAMAGED`` where a damaged log prevents a proof.
    """
    event, path = prove_event(log, subject.position, checkpoint)
    wire = {
        "worldProtocol": "receipt",
        "format": FORMAT,
        "about": {"kind": subject.kind, "id": subject.name, "field": subject.field},
        "origin": checkpoint.origin,
        "event": {"position": event.position, "leaf": event.leaf.hex(), "content": event_text(event)},
        "inclusion": {
            "index": event.position - 1,
            "size": checkpoint.head.size,
            "path": [node.hex() for node in path],
        },
        "checkpoint": checkpoint.to_text(),
    }
    return _checked(canonical_bytes(wire) + b"\n")


def prove_event(log: EventLog, position: int, checkpoint: Checkpoint) -> tuple[LoggedEvent, tuple[bytes, ...]]:
    """Return the event at a position, and the path from its leaf to the root of a checkpoint.

    Raises:
        RefusedError, DamagedLogError: as ``make_receipt``.
    """
    event = log.event_at(position)
    proof = log.prove_inclusion(position, checkpoint.head.size)
    _check_head(proof.head, checkpoint)
    if event.leaf != proof.leaf or not is_intact(event):
        raise changed(event.position)
    return event, proof.path


def event_text(event: LoggedEvent) -> str:
    """Return the text whose hash is the leaf of an event."""
    try:
        state, stream, topic = event.state.decode(), canonical_text(event.stream), canonical_text(event.topic)
    except UnicodeDecodeError:
        raise changed(event.position) from None
    parts = f'"schemaVersion":{event.schema_version},"state":{state},"stream":{stream},"topic":{topic}'
    return f'{{{parts},"version":{event.version}}}'


def changed(position: int) -> DamagedLogError:
    """Return the error of an event that differs from its leaf hash."""
    return DamagedLogError(
        ErrorCode.EVENT_CHANGED,
        f"Event {position} is not what its leaf hash says; run `worldctl verify`.",
        position=position,
    )


def make_consistency(log: EventLog, old: Checkpoint, new: Checkpoint) -> bytes:
    """Return the proof that the log at the new checkpoint is a continuation of the old one.

    Raises:
        RefusedError: ``WRONG_ORIGIN`` where the two are of different logs, ``INVALID_INPUT`` where the old one is
            larger, ``NO_SUCH_EVENT`` where the log is shorter.
        DamagedLogError: ``SAVED_HEAD_MISMATCH``, ``TREE_DAMAGED``: there is no such proof.
    """
    path = prove_growth(log, old, new)
    wire = {
        "worldProtocol": "consistency",
        "format": FORMAT,
        "origin": old.origin,
        "old": old.to_text(),
        "new": new.to_text(),
        "path": [node.hex() for node in path],
    }
    return _checked(canonical_bytes(wire) + b"\n")


def prove_growth(log: EventLog, old: Checkpoint, new: Checkpoint) -> tuple[bytes, ...]:
    """Return the path from the root of one checkpoint to that of another.

    Raises:
        RefusedError, DamagedLogError: as ``make_consistency``.
    """
    if old.origin != new.origin:
        raise RefusedError(
            ErrorCode.WRONG_ORIGIN, f"The checkpoints are of two logs: {old.origin!r} and {new.origin!r}."
        )
    proof = log.prove_consistency(old.head.size, new.head.size)
    for found, checkpoint in ((proof.first, old), (proof.second, new)):
        _check_head(found, checkpoint)
    return proof.path


def is_cose(data: bytes) -> bool:
    """Return whether a file begins like COSE_Sign1, tagged or not; no text in UTF-8 of this project does."""
    return data[:1] in (b"\xd2", b"\x84")


def proof_kind(data: bytes) -> str | None:
    """Return the declared kind of a proof, ``receipt`` or ``consistency``, or None for other files."""
    for kind in ("receipt", "consistency"):
        if data.rstrip().endswith(b'"worldProtocol":"%b"}' % kind.encode()):
            return kind
    return None


def check_proof(data: bytes, trusted: Trusted, earlier: Trusted | None = None) -> VerifiedProof:
    """Check a receipt or a consistency proof from its own bytes.

    Args:
        data: the contents of the file.
        trusted: the trusted keys and origin.
        earlier: those of the older checkpoint of a consistency proof, where the log had another key; None is the same.

    Raises:
        RefusedError: ``BAD_PROOF`` for an invalid proof; ``INVALID_CHECKPOINT``, ``INVALID_NOTE``,
            ``WRONG_ORIGIN``, ``NOT_SIGNED``, ``BAD_SIGNATURE``.
    """
    kind = proof_kind(data)
    with refusing_malformed():
        wire = read_json(data)
        if kind is None or canonical_bytes(wire) + b"\n" != data:
            raise bad_proof("is not one line of canonical JSON")
        if type(wire["format"]) is not int or wire["format"] != FORMAT:
            raise bad_proof(f"has the format {wire['format']!r}; this program supports {FORMAT}")
        return _receipt(wire, trusted) if kind == "receipt" else _consistency(wire, earlier or trusted, trusted)


@contextmanager
def refusing_malformed() -> Iterator[None]:
    """Refuse what cannot be read as ``BAD_PROOF``."""
    try:
        yield
    except RefusedError as refused:
        if refused.code in (ErrorCode.MALFORMED_JSON, ErrorCode.NOT_CANONICAL, ErrorCode.INVALID_EVENT):
            raise bad_proof(f"holds what cannot be: {refused.message}") from None
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise bad_proof(f"lacks something or has it in another form ({error})") from None


def _receipt(wire: dict[str, Any], trusted: Trusted) -> VerifiedProof:
    about, event, inclusion = wire["about"], wire["event"], wire["inclusion"]
    _exactly(wire, "about", "checkpoint", "event", "format", "inclusion", "origin", "worldProtocol")
    _exactly(about, "field", "id", "kind")
    _exactly(event, "content", "leaf", "position")
    _exactly(inclusion, "index", "path", "size")
    checkpoint, unchecked = _checkpoint(wire["checkpoint"], wire["origin"], trusted)
    content, leaf = read_event_text(_text(event["content"]))
    if leaf.hex() != event["leaf"]:
        raise bad_proof("holds another event than its leaf hash says")
    index, size = _number(inclusion["index"]), _number(inclusion["size"])
    if size != checkpoint.head.size or _number(event["position"]) != index + 1:
        raise bad_proof("has another position or size than its checkpoint")
    if not verify_inclusion(leaf, index, size, _nodes(inclusion["path"]), checkpoint.head.root):
        raise bad_proof("does not lead from the event to the checkpoint")
    subject = Subject(about["kind"], about["id"], index + 1)
    check_subject(subject, content)
    if about["field"] != subject.field:
        raise bad_proof(f"names another member than {subject.field} as the one with the id")
    seen = {"position": index + 1, **content}
    return VerifiedProof("receipt", (checkpoint,), unchecked, about, seen)


def _consistency(wire: dict[str, Any], earlier: Trusted, trusted: Trusted) -> VerifiedProof:
    _exactly(wire, "format", "new", "old", "origin", "path", "worldProtocol")
    old, unknown = _checkpoint(wire["old"], wire["origin"], earlier)
    new, more = _checkpoint(wire["new"], wire["origin"], trusted)
    path = _nodes(wire["path"])
    if not verify_consistency(old.head.size, new.head.size, old.head.root, new.head.root, path):
        raise bad_proof("does not lead from the old checkpoint to the new one")
    return VerifiedProof("consistency", (old, new), (*unknown, *more))


def read_event_text(text: str) -> tuple[dict[str, Any], bytes]:
    """Return the members of an event from the text that was hashed, and its leaf hash.

    Raises:
        RefusedError: ``BAD_PROOF``, ``MALFORMED_JSON``, ``NOT_CANONICAL``, ``INVALID_EVENT`` for another text.
    """
    content = read_json(text)
    _exactly(content, "schemaVersion", "state", "stream", "topic", "version")
    if _number(content["version"]) < 1 or _number(content["schemaVersion"]) < 1:
        raise bad_proof("holds an event without a version")
    check_name("stream", content["stream"])
    check_name("topic", content["topic"])
    leaf = event_leaf(
        content["stream"],
        content["version"],
        content["topic"],
        content["schemaVersion"],
        canonical_bytes(content["state"]),
    )
    if canonical_bytes(content).decode() != text:
        raise bad_proof("holds another event than its leaf hash says")
    return content, leaf


def check_subject(subject: Subject, content: dict[str, Any]) -> None:
    """Check that an event contains the id of a receipt's subject.

    Raises:
        RefusedError: ``BAD_PROOF``.
        KeyError, TypeError: the event lacks the member.
    """
    if subject.kind == EVENT:
        topic, found = content["topic"], str(subject.position)
    else:
        topic, field = SUBJECTS[subject.kind]
        found = content["state"]
        for name in field.split("."):
            found = found[name]
    if (content["topic"], found) != (topic, subject.name):
        raise bad_proof(f"has an event that is not about the {subject.kind} {subject.name}")
    state = content["state"]
    if subject.kind == "world":
        parent, hashes = state.get("parent"), (state["schemaHash"], state["snapshotHash"])
        _nodes([*hashes] if parent is None else [*hashes, parent])
        if (world_id(*hashes, parent), content_id(*hashes)) != (state["worldId"], state["contentId"]):
            raise bad_proof("has a worldId or contentId that does not follow from its hashes")


def _checkpoint(text: str, origin: str, trusted: Trusted) -> tuple[Checkpoint, tuple[str, ...]]:
    checkpoint = read_checkpoint(_text(text).encode())
    if checkpoint.origin != origin:
        raise bad_proof("names another origin than its checkpoint")
    if checkpoint.head.size == 0 and checkpoint.head.root != EMPTY_ROOT:
        raise bad_proof("has a checkpoint of no events with the root of some")
    return checkpoint, trusted.check(checkpoint)


def _exactly(wire: Any, *names: str) -> None:
    if not isinstance(wire, dict) or sorted(wire) != sorted(names):
        raise bad_proof(f"has not exactly the fields {', '.join(names)} where they belong")


def _text(wire: Any) -> str:
    if not isinstance(wire, str):
        raise bad_proof("has a text that is none")
    return wire


def _number(wire: Any) -> int:
    if type(wire) is not int:
        raise bad_proof("has a number that is none")
    return wire


def _nodes(wire: Any) -> list[bytes]:
    nodes = [bytes.fromhex(node) for node in wire]
    if len(nodes) > _MOST_NODES or any(len(node) != HASH_BYTES for node in nodes):
        raise bad_proof("has a hash or a path that is none")
    if [node.hex() for node in nodes] != wire:
        raise bad_proof("has a hash that is written in another way")
    return nodes


def _checked(data: bytes) -> bytes:
    """Return a new proof after a check of it."""
    check_proof(data, Trusted())
    return data


def _check_head(found: TreeHead, checkpoint: Checkpoint) -> None:
    if found != checkpoint.head:
        raise DamagedLogError(
            ErrorCode.SAVED_HEAD_MISMATCH,
            f"The first {found.size} events of this log are not those under the checkpoint of {checkpoint.origin!r}.",
            position=found.size,
        )


def bad_proof(clause: str) -> RefusedError:
    """Return the refusal of a proof, of which ``clause`` is true."""
    return RefusedError(ErrorCode.BAD_PROOF, f"This proves nothing: it {clause}.")
