"""``worldctl prove``: a receipt for one thing in the log, or the proof that the log only grew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.result_files import written
from worldprotocol.cli.support.signing import signed_checkpoint, signing_options, warn_of_names

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.proofs.checkpoint import Checkpoint
    from worldprotocol.export.proofs.note import SigningKey
    from worldprotocol.export.proofs.receipt import Subject


@command("prove")
@click.argument("named", required=False, metavar="[ID]")
@click.option("--between", nargs=2, metavar="OLD NEW", help="Two checkpoint files, or numbers of events; no ID then.")
@click.option("--checkpoint", "kept", metavar="FILE", help="Prove under this checkpoint, with the signatures it has.")
@signing_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "cose"]),
    default="json",
    show_default=True,
    help="A JSON document, or a COSE Receipt (RFC 9942), signed by one key.",
)
@click.option("-o", "--out", "file", metavar="FILE", help="Where it goes; unless given, to stdout.")
def prove(
    desk: CommandContext,
    named: str | None,
    between: tuple[str, str] | None,
    kept: str | None,
    keys: tuple[str, ...],
    origin: str | None,
    form: str,
    file: str | None,
) -> int:
    """Write a receipt for an event (by position), proposal, intent, decision, world, verdict or run (by its id).

    A receipt is one JSON document that is checked without the log: docs/verify_receipt.py does so, and
    `worldctl verify FILE`. With --between, the proof that nothing before OLD was changed on the way to NEW.
    With --format cose, either is a COSE Receipt instead, which other programs check as well.
    """
    if (named is None) is (between is None):
        raise click.UsageError("Give the ID of what to prove, or --between OLD NEW.")
    if kept is not None and (keys or origin or between):
        raise click.UsageError(
            "--checkpoint brings its own origin and signatures; leave --key, --origin, --between out."
        )
    if between is not None and (keys or origin) and not any(_is_size(one) for one in between):
        raise click.UsageError("The two files bring their own origin and signatures; leave --key and --origin out.")
    if form == "cose":
        _check_cose_options(between, kept, keys)
    with desk.look() as world:
        if between is not None:
            (old, _), (new, signers) = (_end(desk, world, one, keys, origin) for one in between)
            data = _consistency(world, old, new, signers if form == "cose" else None)
            rendered = {"kind": "consistency", "old": old.head.size, "new": new.head.size}
            words = f"the first {counted(old.head.size, 'event')} of {new.head.size} are as they were"
        else:
            assert named is not None
            subject = subject_named(world, named)
            new, signers = (_kept(kept), []) if kept is not None else _fresh(desk, world, None, keys, origin)
            data = _receipt(world, subject, new, signers if form == "cose" else None)
            rendered = {"kind": subject.kind, "id": subject.name, "position": subject.position, "size": new.head.size}
            words = f"{subject.kind} {subject.name}, event {subject.position} of {new.head.size}"
    if not new.note.signatures:
        desk.out.remark("It is not signed: a verifier needs the tree head from elsewhere. --key signs it.")
    if written(desk, data, file):
        desk.out.tell({**rendered, "format": form, "file": file, "origin": new.origin}, f"{file}: {words}")
    return 0


def _check_cose_options(between: tuple[str, str] | None, kept: str | None, keys: tuple[str, ...]) -> None:
    """Refuse options with which there is no key, or more than one, to sign COSE with."""
    if kept is not None:
        raise click.UsageError("--format cose is signed anew, without the signatures of a checkpoint; leave one out.")
    if between is not None and not _is_size(between[1]):
        raise click.UsageError("--format cose is signed anew: give NEW as a number of events.")
    if len(set(keys)) > 1:
        raise click.UsageError("--format cose has one signature: give one --key.")


def _receipt(world: Realm, subject: Subject, checkpoint: Checkpoint, signers: list[SigningKey] | None) -> bytes:
    from worldprotocol.export.proofs.receipt import make_receipt

    if signers is None:
        return make_receipt(world.log, subject, checkpoint)
    from worldprotocol.export.proofs.cose import cose_receipt
    from worldprotocol.export.proofs.note import first_key

    return cose_receipt(world.log, subject, checkpoint, first_key(signers))


def _consistency(world: Realm, old: Checkpoint, new: Checkpoint, signers: list[SigningKey] | None) -> bytes:
    from worldprotocol.export.proofs.receipt import make_consistency

    if signers is None:
        return make_consistency(world.log, old, new)
    from worldprotocol.export.proofs.cose import cose_consistency
    from worldprotocol.export.proofs.note import first_key

    return cose_consistency(world.log, old, new, first_key(signers))


def subject_named(world: Realm, named: str) -> Subject:
    """Return what a position or the beginning of an id names, and the event that is the evidence.

    Raises:
        RefusedError: ``NOT_FOUND``, ``AMBIGUOUS``; ``NOT_PROVABLE`` for a session, which is no single event.
    """
    from world.errors import RefusedError
    from worldprotocol.api.lookup.id_lookup import KINDS, as_position, find
    from worldprotocol.export.proofs.receipt import EVENT, Subject

    position = as_position(world, named)
    if position is not None and position > 0:
        return Subject(EVENT, str(position), position)
    kind, name = find(world, named, [*KINDS, "verdict"])
    if kind == "verdict":
        return Subject(kind, name, int(world.archive.rows("verdict", {"of_verdict": name})[0][0]))
    if kind == "world":
        return Subject(kind, name, world.archive.world(name).position)
    if kind == "run":
        return Subject(kind, name, world.log.stream(f"run:{name}", limit=1)[0].position)
    if kind not in ("proposal", "intent", "decision"):
        raise RefusedError(
            ErrorCode.NOT_PROVABLE, f"A {kind} is no single event; prove one of its runs, or an event by position."
        )
    return _of_proposal(world, kind, name)


def _of_proposal(world: Realm, kind: str, proposal_id: str) -> Subject:
    from world.events.proposal_events import DecisionMade, ProposalSubmitted
    from world.read_models.decoding import decoded
    from worldprotocol.export.proofs.receipt import Subject

    for logged in world.log.stream(proposal_id):
        event = decoded(logged)
        if kind == "decision" and isinstance(event, DecisionMade):
            return Subject(kind, event.decision.decision_id, logged.position)
        if kind != "decision" and isinstance(event, ProposalSubmitted):
            name = proposal_id if kind == "proposal" else event.intent.intent_id
            return Subject(kind, name, logged.position)
    raise AssertionError(f"{proposal_id} was found by its {kind}")


def _end(
    desk: CommandContext, world: Realm, given: str, keys: tuple[str, ...], origin: str | None
) -> tuple[Checkpoint, list[SigningKey]]:
    if _is_size(given):
        return _fresh(desk, world, int(given), keys, origin)
    return _kept(given), []


def _is_size(given: str) -> bool:
    """Return whether this is a number of events rather than a file."""
    from worldprotocol.cli.support.input_reading import inputs

    return given.isascii() and given.isdigit() and not inputs().is_file(given)


def _kept(file: str) -> Checkpoint:
    from worldprotocol.cli.support.input_reading import read_file
    from worldprotocol.export.proofs.checkpoint import read_checkpoint

    return read_checkpoint(read_file(file))


def _fresh(
    desk: CommandContext, world: Realm, size: int | None, keys: tuple[str, ...], origin: str | None
) -> tuple[Checkpoint, list[SigningKey]]:
    """Return a checkpoint over the first events of the log, signed where there is a key, and its keys."""
    made, signers = signed_checkpoint(desk, world, size, keys, origin)
    warn_of_names(desk, made, signers)
    return made, signers
