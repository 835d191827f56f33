"""``worldctl verify``: whether a log, an export, a receipt or a consistency proof is what it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.options import Desk, command
from worldprotocol.cli.output import counted
from worldprotocol.cli.signing import trusted, trusting_options

if TYPE_CHECKING:
    from world.verify import Report
    from worldprotocol.assemble import TreeHead
    from worldprotocol.proofs.checkpoint import Checkpoint, Trusted
    from worldprotocol.proofs.exports import ExportReport


@command("verify")
@click.argument("file", required=False, metavar="[FILE]")
@click.option(
    "--against",
    multiple=True,
    metavar="SIZE:ROOT|FILE",
    help="A tree head kept elsewhere, or a file that holds some: a checkpoint, lines of SIZE:ROOT, an export; may be "
    "given often.",
)
@trusting_options
def verify(desk: Desk, file: str | None, against: tuple[str, ...], vkeys: tuple[str, ...], origin: str | None) -> int:
    """Check the tree, every event's form, references and hashes, and the index; name the first bad event.

    With FILE, an export (also a redacted one), a receipt or a consistency proof is checked, and no log is needed.
    Checkpoints and proofs have to be signed with every --vkey. Exit code 3 where the log or the export contradicts
    itself, 1 where only the index does, or where nothing is proven.
    """
    trust = trusted(vkeys, origin)
    saved = Saved(trust)
    for given in against:
        saved.add(given)
    if file is None:
        saved.demand_signatures()
    else:
        return _verify_file(desk, file, saved)
    from world.verify import verify as check_all

    with desk.look() as world, desk.progress("Verifying") as progress:
        report = check_all(world.log, against=saved.heads, progress=progress)
    if desk.json:
        desk.out.document(report.to_wire() | saved.to_wire())
    else:
        _tell_findings(desk, report)
        parts = ((report.events, "event"), (report.worlds, "world"), (report.proposals, "intent"))
        what = ", ".join(counted(number, noun) for number, noun in parts) + saved.in_words()
        _conclude(desk, report, what)
    saved.remark(desk)
    return _exit_code(report)


class Saved:
    """The tree heads to compare with, and who vouches for them."""

    def __init__(self, trust: Trusted) -> None:
        self.trust = trust
        self.heads: list[TreeHead] = []
        self.checkpoints: list[tuple[Checkpoint, tuple[str, ...]]] = []
        self.unsigned: list[str] = []

    def demand_signatures(self) -> None:
        """Let nothing stand beside keys that has no signatures, where only checkpoints have some.

        Raises:
            click.UsageError: a key was given, and no checkpoint, or something else as well.
        """
        if self.trust.keys and not self.checkpoints:
            raise click.UsageError("--vkey is about the signatures of a checkpoint: name one with --against.")
        if self.trust.keys and self.unsigned:
            raise click.UsageError(
                f"--vkey asks for signatures, and {', '.join(self.unsigned)} has none: leave it out, or the keys."
            )

    def add(self, given: str) -> None:
        """Take ``SIZE:ROOT``, or what a file holds."""
        from world.errors import Refused
        from worldprotocol.proofs.checkpoint import is_checkpoint, read_checkpoint
        from worldprotocol.transfer import read_heads

        path = Path(given)
        if not path.is_file():
            self.unsigned.append(given)
            if ":" not in given:
                raise Refused("INVALID_TREE_HEAD", f"--against takes SIZE:ROOT or a file; there is no file {given}.")
            self.heads += read_heads([given.encode()])
            return
        with path.open("rb") as lines:
            if is_checkpoint(beginning := lines.read(1 << 20)):
                checkpoint = read_checkpoint(beginning + lines.read(1))
                self.checkpoints.append((checkpoint, self.trust.check(checkpoint)))
                self.heads.append(checkpoint.head)
                return
            lines.seek(0)
            heads = read_heads(lines)
        self.unsigned.append(given)
        if not heads:
            raise Refused("INVALID_TREE_HEAD", f"{given} holds no tree head; write one as SIZE:ROOT on a line.")
        self.heads += heads

    def to_wire(self) -> dict[str, Any]:
        """Return what is known of the checkpoints, as JSON."""
        if not self.checkpoints:
            return {}
        return {"checkpoints": [_checkpoint_wire(one, names, self.trust) for one, names in self.checkpoints]}

    def in_words(self) -> str:
        """Return what was compared, as the end of a sentence."""
        if not self.heads:
            return ""
        words = f", against {counted(len(self.heads), 'saved tree head')}"
        if self.checkpoints and self.trust.keys:
            words += f", signed by {', '.join(key.name for key in self.trust.keys)}"
        return words

    def remark(self, desk: Desk) -> None:
        """Say plainly whose signatures were not looked at."""
        unchecked = {name for _, names in self.checkpoints for name in names}
        if any(not one.note.signatures for one, _ in self.checkpoints):
            desk.out.remark("A checkpoint is not signed: it is worth what the place is worth where it was kept.")
        if unchecked:
            desk.out.remark(
                f"Not checked: the signatures by {', '.join(sorted(unchecked))}; --vkey names a key to check."
            )


def _verify_file(desk: Desk, file: str, saved: Saved) -> int:
    from world.errors import Refused
    from worldprotocol.proofs.exports import check_export, is_export

    path = Path(file)
    try:
        with path.open("rb") as source:
            if not is_export(source.read(4096)):
                return _verify_proof(desk, path.read_bytes(), saved)
            saved.demand_signatures()
            source.seek(0)
            with desk.progress("Verifying") as progress:
                report = check_export(source, against=saved.heads, progress=progress)
    except OSError as error:
        raise Refused("FILE_UNREADABLE", f"{file} cannot be read: {error.strerror or error}.", path=file) from None
    except Refused as refused:
        if refused.code != "BAD_EXPORT":
            raise
        return _bad_export(desk, refused)
    if desk.json:
        desk.out.document(report.to_wire() | saved.to_wire())
    else:
        _tell_findings(desk, report)
        hidden = f", {report.hidden} of them hidden" if report.rules else ""
        _conclude(desk, report, f"{counted(report.events, 'event')} in {file}{hidden}{saved.in_words()}")
        if report.hidden:
            spans = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in report.spans[:20])
            more = ", ..." if len(report.spans) > 20 else ""
            desk.out.text(f"not looked into: events {spans}{more} (hidden by {', '.join(report.rules)}, as it says)")
            desk.out.text(
                "not checked without them: references, states, keys and hashes made of them, ids that repeat, "
                "the order of steps, leases"
            )
    saved.remark(desk)
    return 0 if report.ok else 3


def _bad_export(desk: Desk, refused: Any) -> int:
    """Tell of a file that contradicts itself, as of a log that does."""
    message = refused.message.removesuffix(" Nothing was imported.")
    finding = {"code": refused.code, "position": 0, "message": message, "details": dict(refused.details)}
    desk.out.tell({"kind": "export", "ok": False, "findings": [finding]}, f"{refused.code}\t{message}")
    return 3


def _verify_proof(desk: Desk, data: bytes, saved: Saved) -> int:
    from world.errors import Refused
    from worldprotocol.proofs.receipt import check_proof, proof_kind

    if proof_kind(data) is None:
        raise Refused("BAD_PROOF", "The file is no export, no receipt and no consistency proof.")
    if not saved.trust.keys and not saved.heads:
        raise click.UsageError("Give a --vkey, or --against a tree head that was kept: a file cannot vouch for itself.")
    checked = check_proof(data, saved.trust)
    known = [one.head for one in checked.checkpoints]
    if any(head not in known for head in saved.heads):
        raise Refused("BAD_PROOF", "This proves nothing here: its tree head is not the one that was kept.")
    last = checked.checkpoints[-1]
    if checked.about is not None and checked.event is not None:
        what = f"{checked.about['kind']} {checked.about['id']}: event {checked.event['position']}, "
        words = f"{what}{checked.event['topic']}, in the log {last.origin} with {counted(last.head.size, 'event')}"
    else:
        first = checked.checkpoints[0]
        words = (
            f"the first {counted(first.head.size, 'event')} of {last.origin} are as they were, of {last.head.size} now"
        )
    wire = {
        "kind": checked.kind,
        "ok": True,
        "about": checked.about,
        "event": checked.event,
        "checkpoints": [_checkpoint_wire(one, checked.unchecked, saved.trust) for one in checked.checkpoints],
    }
    by = ", ".join(key.name for key in saved.trust.keys)
    if by:
        words += f"; signed by {by}"
    else:
        words += "; under a tree head that was kept"
    desk.out.tell({name: value for name, value in wire.items() if value is not None}, f"proven: {words}")
    if checked.unchecked:
        desk.out.remark(f"Not checked: the signatures by {', '.join(sorted(set(checked.unchecked)))}.")
    return 0


def _checkpoint_wire(checkpoint: Checkpoint, unchecked: tuple[str, ...], trust: Trusted) -> dict[str, Any]:
    return {
        "origin": checkpoint.origin,
        "size": checkpoint.head.size,
        "root": checkpoint.head.root_hex,
        "signedBy": [key.name for key in trust.keys],
        "unchecked": [one.name for one in checkpoint.note.signatures if one.name in unchecked],
    }


def _tell_findings(desk: Desk, report: Report | ExportReport) -> None:
    for finding in report.findings:
        desk.out.text(f"{finding.position}\t{finding.code}\t{finding.message}")


def _conclude(desk: Desk, report: Report | ExportReport, what: str) -> None:
    if report.ok:
        desk.out.text(f"sound: {what}; tree head {report.head}")
        return
    found = counted(len(report.findings), "finding")
    first = report.findings[0].position
    where = f"the first bad event is {first}" if first else "every event is as it was logged"
    desk.out.text(f"{found} in {what}; {where}")


def _exit_code(report: Report) -> int:
    if report.ok:
        return 0
    return 1 if all(one.code == "INDEX_DIFFERS" or one.details.get("mendable") for one in report.findings) else 3
