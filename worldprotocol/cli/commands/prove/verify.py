"""``worldctl verify``: whether a log, export, archive, receipt or consistency proof is what it says it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from world.error_codes import ErrorCode
from world.model.record import WireForm
from worldprotocol.cli.support.audit_work.options import is_realm, named_logs, workers_of, workers_options
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.signing import trusted, trusting_options

if TYPE_CHECKING:
    from world.audit.verify import VerificationReport
    from worldprotocol.analysis.verifying import LogVerification
    from worldprotocol.analysis.work.workers import Workers
    from worldprotocol.api.bootstrap import TreeHead
    from worldprotocol.api.lookup.closed_log import ClosedLog
    from worldprotocol.export.jsonl_lines import SalvagedFrom
    from worldprotocol.export.proofs.checkpoint import Checkpoint, Trusted
    from worldprotocol.export.proofs.exports import ExportReport
    from worldprotocol.export.proofs.note import VerifierKey
    from worldprotocol.export.proofs.receipt import VerifiedProof


@command("verify")
@click.argument("files", nargs=-1, metavar="[FILE|REALM...]")
@click.option(
    "--against",
    multiple=True,
    metavar="SIZE:ROOT|FILE",
    help="A tree head kept elsewhere, or a file that holds some: a checkpoint, lines of SIZE:ROOT, an export; may be "
    "given often.",
)
@trusting_options
@click.option(
    "--old-vkey",
    "old_vkeys",
    multiple=True,
    metavar="KEY",
    help="Key that has to have signed the older checkpoint of a consistency proof instead of --vkey, where the log has "
    "another one by now; repeatable.",
)
@click.option(
    "--archive",
    "archives",
    multiple=True,
    metavar="FOLDER",
    help="An archive of the log, to be checked and compared with it; repeatable, in order.",
)
@workers_options
def verify(desk: CommandContext, files: tuple[str, ...], archives: tuple[str, ...], **options: Any) -> int:
    """Check the tree, every event's form, references and hashes, and the index; name the first bad event.

    With FILE, an export (also a redacted one), an archive, a receipt or a consistency proof is checked, and no log is
    needed. Checkpoints and proofs have to be signed with every --vkey. Exit code 3 where the log, the export or the
    archive contradicts itself, 1 where only what is derived from its events does not agree with them, or where nothing
    is proven.

    Each REALM is a world.toml, a folder with one, the address of a log, or with --directory a name there. The answer
    for each is that of the command for it alone, and an error of one does not end the others.
    """
    vkeys, origin, old_vkeys = options["vkeys"], options["origin"], options["old_vkeys"]
    has_workers = options["jobs"] is not None or options["executor"] != "processes"
    if len(files) > 1 or has_workers or any(is_realm(desk, one) for one in files):
        if options["against"] or vkeys or old_vkeys or archives:
            raise click.UsageError("Tree heads, keys and archives are those of one log; give --log in place of REALM.")
        if not files:
            raise click.UsageError("--jobs and --executor divide the realms among processes; name the realms.")
        return verify_realms(desk, named_logs(desk, files), workers_of(options["jobs"], options["executor"]))
    saved = Saved(trusted(vkeys, origin), trusted(old_vkeys, origin) if old_vkeys else None)
    for given in options["against"]:
        saved.add(given)
    if files:
        if archives:
            raise click.UsageError("--archive compares archives with the log; leave FILE out.")
        return _verify_file(desk, files[0], saved)
    saved.demand_signatures()
    from world.audit.verify import verify as check_all
    from worldprotocol.cli.commands.prove.archive_checks import check_archives, naming_archives

    with naming_archives(), desk.look(tells_closed=False) as world:
        checked = check_archives(desk, archives, world.log)
        with desk.progress("Verifying") as progress:
            report = check_all(world.log, against=saved.heads, progress=progress)
    if desk.json:
        desk.out.document(wire_of(report) | saved.to_wire() | checked.to_wire())
    else:
        checked.tell()
        tell_report(desk, report, saved.in_words(), is_compared=bool(archives))
    saved.remark(desk)
    return exit_code_of_report(report)


def tell_report(desk: CommandContext, report: VerificationReport, against: str = "", *, is_compared: bool) -> None:
    """Print the report about a log."""
    tell_findings(desk, report)
    parts = ((report.events, "event"), (report.worlds, "world"), (report.proposals, "intent"))
    _conclude(desk, report, ", ".join(counted(number, noun) for number, noun in parts) + against)
    _tell_branched(desk, report)
    _tell_archived(desk, report, is_compared=is_compared)
    if (closed := _closed(report)) is not None:
        desk.out.text(str(closed))


def wire_of(report: VerificationReport) -> dict[str, Any]:
    """Return the report about a log as JSON, with what became of a log that was closed to writers."""
    closed = _closed(report)
    return report.to_wire() | ({} if closed is None else {"closed": closed.to_wire()})


def _closed(report: VerificationReport) -> ClosedLog | None:
    """Look for the realm of a log that was closed to writers."""
    from worldprotocol.api.lookup.closed_log import ClosedLog

    return None if report.closed is None else ClosedLog.looked_up(report.closed, report.head)


def verify_realms(desk: CommandContext, named: Sequence[tuple[str, str]], workers: Workers) -> int:
    """Verify the logs of several realms, and print the answer for each and their total; return the exit code."""
    from worldprotocol.analysis.verifying import LogVerification, verify_logs
    from worldprotocol.cli.support.exit_codes import exit_code_of

    asked = [LogVerification(address) for _, address in named]
    with desk.progress("Verifying") as progress:
        verify_logs(asked, workers=workers, progress=progress)
    reports = [one.report for one in asked if one.report is not None]
    errors = [one.error for one in asked if one.error is not None]
    sound = sum(report.ok for report in reports)
    total = {"realms": len(asked), "sound": sound, "unsound": len(reports) - sound, "failed": len(errors)}
    if desk.json:
        answers = [{"realm": name, **_answer(one)} for (name, _), one in zip(named, asked, strict=True)]
        desk.out.document({"ok": sound == len(asked), "realms": answers, "total": total})
    else:
        for (name, _), one in zip(named, asked, strict=True):
            desk.out.text(f"{name}:")
            if one.report is not None:
                tell_report(desk, one.report, is_compared=False)
            elif one.error is not None:
                desk.out.text(f"failed: {one.error.message} [{one.error.code}]")
        desk.out.text(
            f"{counted(len(asked), 'realm')}: {sound} sound, {total['unsound']} unsound, {len(errors)} failed"
        )
    return max([*map(exit_code_of_report, reports), *map(exit_code_of, errors)])


def _answer(one: LogVerification) -> dict[str, Any]:
    if one.error is not None:
        return {"ok": False, "error": one.error.to_dict()}
    return {} if one.report is None else wire_of(one.report)


class Saved(WireForm):
    """The tree heads to compare with, and the keys that signed them."""

    WIRE: ClassVar = "checkpoints=shown?"

    def __init__(self, trust: Trusted, earlier: Trusted | None = None) -> None:
        self.trust = trust
        self.earlier = earlier
        self.heads: list[TreeHead] = []
        self.checkpoints: list[tuple[Checkpoint, tuple[str, ...]]] = []
        self.unsigned: list[str] = []

    def demand_signatures(self) -> None:
        """Refuse tree heads without signatures beside keys; only checkpoints are signed.

        Raises:
            click.UsageError: a key was given, and no checkpoint, or something else as well; or a key for what only a
                consistency proof has.
        """
        if self.earlier is not None:
            raise click.UsageError("--old-vkey is about the older checkpoint in a consistency proof.")
        if self.trust.keys and not self.checkpoints:
            raise click.UsageError("--vkey is about the signatures of a checkpoint: name one with --against.")
        if self.trust.keys and self.unsigned:
            raise click.UsageError(
                f"--vkey requires signatures, and {', '.join(self.unsigned)} has none: leave it out, or the keys."
            )

    def add(self, given: str) -> None:
        """Take ``SIZE:ROOT``, or what a file holds."""
        from world.errors import RefusedError
        from worldprotocol.cli.support.input_reading import inputs
        from worldprotocol.export.jsonl import read_heads
        from worldprotocol.export.proofs.checkpoint import is_checkpoint, read_checkpoint

        if not inputs().is_file(given):
            self.unsigned.append(given)
            if ":" not in given:
                raise RefusedError(
                    ErrorCode.INVALID_TREE_HEAD, f"--against takes SIZE:ROOT or a file; there is no file {given}."
                )
            self.heads += read_heads([given.encode()])
            return
        with inputs().open(given) as lines:
            if is_checkpoint(beginning := lines.read(1 << 20)):
                checkpoint = read_checkpoint(beginning + lines.read(1))
                self.checkpoints.append((checkpoint, self.trust.check(checkpoint)))
                self.heads.append(checkpoint.head)
                return
            lines.seek(0)
            heads = read_heads(lines)
        self.unsigned.append(given)
        if not heads:
            raise RefusedError(
                ErrorCode.INVALID_TREE_HEAD, f"{given} holds no tree head; write one as SIZE:ROOT on a line."
            )
        self.heads += heads

    @property
    def shown(self) -> list[dict[str, Any]] | None:
        """What is known of the checkpoints, as JSON."""
        return [_checkpoint_wire(one, names, self.trust) for one, names in self.checkpoints] or None

    def in_words(self) -> str:
        """Return what was compared, as the end of a sentence."""
        if not self.heads:
            return ""
        words = f", against {counted(len(self.heads), 'saved tree head')}"
        if self.checkpoints and self.trust.keys:
            words += f", {_signed(self.trust, [one for one, _ in self.checkpoints])}"
        return words

    def remark(self, desk: CommandContext) -> None:
        """Say plainly whose signatures were not looked at."""
        unchecked = {name for _, names in self.checkpoints for name in names}
        if any(not one.note.signatures for one, _ in self.checkpoints):
            desk.out.remark("A checkpoint is not signed: it is worth what the place is worth where it was kept.")
        if unchecked:
            desk.out.remark(
                f"Not checked: the signatures by {', '.join(sorted(unchecked))}; --vkey names a key to check."
            )


def _verify_file(desk: CommandContext, file: str, saved: Saved) -> int:
    from world.errors import RefusedError
    from worldprotocol.export.proofs.exports import check_export, is_export

    path = Path(file)
    if path.is_dir():
        from worldprotocol.cli.commands.prove.archive_checks import verify_archive

        return verify_archive(desk, path, saved.trust, saved.heads)
    try:
        with path.open("rb") as source:
            if not is_export(source.read(4096)):
                return _verify_proof(desk, path.read_bytes(), saved)
            saved.demand_signatures()
            source.seek(0)
            with desk.progress("Verifying") as progress:
                report = check_export(source, against=saved.heads, progress=progress)
    except OSError as error:
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE, f"{file} cannot be read: {error.strerror or error}.", path=file
        ) from None
    except RefusedError as refused:
        if refused.code != "BAD_EXPORT":
            raise
        return _bad_export(desk, refused)
    if desk.json:
        desk.out.document(report.to_wire() | saved.to_wire())
    else:
        tell_findings(desk, report)
        hidden = f", {report.hidden} of them hidden" if report.rules else ""
        _conclude(desk, report, f"{counted(report.events, 'event')} in {file}{hidden}{saved.in_words()}")
        _tell_limits(desk, report)
    saved.remark(desk)
    return 0 if report.ok else 3


def _tell_limits(desk: CommandContext, report: ExportReport) -> None:
    """Say what the check of an export could not look into."""
    if report.whole is not None:
        _tell_branched(desk, report.whole)
    if report.salvaged is not None:
        desk.out.text(f"salvaged: {salvaged_words(report.salvaged, report.events)}")
    if report.hidden:
        spans = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in report.spans[:20])
        more = ", ..." if len(report.spans) > 20 else ""
        desk.out.text(f"not looked into: events {spans}{more} (hidden by {', '.join(report.rules)}, as it says)")
        desk.out.text(
            "not checked without them: references, states and their hashes, ids of effects, ids that hidden events "
            "repeat, patches against their scope, the order of steps, leases, runs"
        )


def _tell_branched(desk: CommandContext, report: VerificationReport) -> None:
    if report.branched is not None:
        desk.out.text(
            f"a branch that never was (whatif): all behind event {report.branched} was supposed, and not done"
        )


def _tell_archived(desk: CommandContext, report: VerificationReport, *, is_compared: bool) -> None:
    if report.archived is not None:
        archived = report.archived
        contents = counted(archived.removed, "content")
        desk.out.text(
            f"archived: {contents} of the first {archived.upto} events, under the manifest {archived.manifest}; "
            + ("the archives have them" if is_compared else "--archive compares them")
        )


def salvaged_words(salvaged: SalvagedFrom, events: int) -> str:
    """Return what a salvaged export says of itself, as a sentence without its end."""
    heads = {"saved": "under a tree head that was kept elsewhere", "stored": "under a tree head of the damaged log"}
    under = heads.get(salvaged.vouched, "under no tree head")
    return f"{counted(events, 'event')} of {salvaged.expected} that a damaged log had, {under}, as it says"


def _bad_export(desk: CommandContext, refused: Any) -> int:
    """Report a file that contradicts itself as a log that does."""
    message = refused.message.removesuffix(" Nothing was imported.")
    position = refused.details.get("position", 0)  # 0 where it is not about an event
    finding = {"code": refused.code, "position": position, "message": message, "details": dict(refused.details)}
    desk.out.tell({"kind": "export", "ok": False, "findings": [finding]}, f"{refused.code}\t{message}")
    return 3


def _verify_proof(desk: CommandContext, data: bytes, saved: Saved) -> int:
    from world.errors import RefusedError
    from worldprotocol.export.proofs.checkpoint import Trusted
    from worldprotocol.export.proofs.receipt import check_proof, is_cose, proof_kind

    kind, trust, in_cose = proof_kind(data), saved.trust, is_cose(data)
    if kind is None and not in_cose:
        raise RefusedError(
            ErrorCode.BAD_PROOF,
            "The file is no export, no receipt and no consistency proof. A checkpoint is given with --against.",
        )
    if (kind == "receipt" or in_cose) and saved.earlier is not None:
        raise click.UsageError("--old-vkey is about the older checkpoint in a consistency proof; COSE contains none.")
    if not trust.keys and not saved.heads:
        raise click.UsageError("Give a --vkey, or --against a tree head that was kept: a file cannot vouch for itself.")
    if in_cose:
        from worldprotocol.export.proofs.cose import check_cose

        checked, earlier = check_cose(data, trust, saved.heads), Trusted()
    else:
        checked, earlier = check_proof(data, trust, saved.earlier), saved.earlier or trust
    known = [one.head for one in checked.checkpoints]
    if any(head not in known for head in saved.heads):
        raise RefusedError(ErrorCode.BAD_PROOF, "This proves nothing here: its tree head is not the one that was kept.")
    if not trust.keys and known[-1] not in saved.heads:
        raise RefusedError(
            ErrorCode.BAD_PROOF,
            "This proves nothing here: only its older tree head was kept, and anybody can make a newer one. Give a "
            "--vkey, or the newer one --against.",
        )
    trusts = [earlier, trust][-len(known) :]
    wire = {
        "kind": checked.kind,
        "ok": True,
        "about": checked.about,
        "event": checked.event,
        "checkpoints": [
            _checkpoint_wire(one, checked.unchecked, by) for one, by in zip(checked.checkpoints, trusts, strict=True)
        ],
    }
    rendered = {name: value for name, value in wire.items() if value is not None}
    desk.out.tell(rendered, f"proven: {_proven(checked, saved)}")
    if checked.unchecked:
        desk.out.remark(f"Not checked: the signatures by {', '.join(sorted(set(checked.unchecked)))}.")
    return 0


def _proven(checked: VerifiedProof, saved: Saved) -> str:
    """Return what is proven, and by which keys; without a key the log is not identified."""
    trust, first, last = saved.trust, checked.checkpoints[0], checked.checkpoints[-1]
    size = counted(last.head.size, "event")
    if checked.about is not None and checked.event is not None:
        what = f"{checked.about['kind']} {checked.about['id']}: event {checked.event['position']}, "
        words = f"{what}{checked.event['topic']}, in {f'the log {last.origin}' if trust.keys else 'a log'} with {size}"
    else:
        log = last.origin if trust.keys else "a log"
        words = f"the first {counted(first.head.size, 'event')} of {log} are as they were, of {last.head.size} now"
        if saved.earlier is not None:
            words += f"; the older ones {_signed(saved.earlier, [first])}"
            return f"{words}, all {_signed(trust, [last])}" if trust.keys else words
    if not trust.keys:
        return f"{words}; under a tree head that was kept"
    return f"{words}; {_signed(trust, checked.checkpoints)}"


def _signed(trust: Trusted, checkpoints: Sequence[Checkpoint]) -> str:
    """Return whose signatures were checked, and when witnesses made theirs."""
    times = [dict(_cosigned(one, trust)) for one in checkpoints]
    names = []
    for key in trust.keys:
        rendered = sorted({when[key] for when in times if key in when})
        names.append(key.name + (f" at {', '.join(map(_moment, rendered))}" if rendered else ""))
    return f"signed by {', '.join(names)}"


def _cosigned(checkpoint: Checkpoint, trust: Trusted) -> Iterator[tuple[VerifierKey, int]]:
    """Yield the keys of witnesses that signed, and when they did, in seconds since 1970."""
    from worldprotocol.export.proofs.note import COSIGNATURE

    for key in trust.keys:
        for one in checkpoint.note.signatures if key.kind == COSIGNATURE else ():
            if (one.name, one.key_id) == (key.name, key.key_id):
                yield key, one.seconds


def _moment(seconds: int) -> str:
    """Return a time as text; a witness can sign any."""
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return f"{seconds} s after 1970"


def _checkpoint_wire(checkpoint: Checkpoint, unchecked: tuple[str, ...], trust: Trusted) -> dict[str, Any]:
    return {
        "origin": checkpoint.origin,
        "size": checkpoint.head.size,
        "root": checkpoint.head.root_hex,
        "signedBy": [key.name for key in trust.keys],
        "cosignedAt": {key.name: seconds for key, seconds in _cosigned(checkpoint, trust)},
        "unchecked": [one.name for one in checkpoint.note.signatures if one.name in unchecked],
    }


def tell_findings(desk: CommandContext, report: VerificationReport | ExportReport) -> None:
    """Print the findings of a report."""
    for finding in report.findings:
        desk.out.text(f"{finding.position}\t{finding.code}\t{finding.message}")


def _conclude(desk: CommandContext, report: VerificationReport | ExportReport, what: str) -> None:
    if report.ok:
        desk.out.text(f"sound: {what}; tree head {report.head}")
        return
    found = counted(len(report.findings), "finding")
    places = [one.position for one in report.findings if one.position and not one.is_derived]
    where = f"the first bad event is {min(places)}" if places else "every event is as it was logged"
    desk.out.text(f"{found} in {what}; {where}")


def exit_code_of_report(report: VerificationReport) -> int:
    """Return the exit code for a report."""
    if report.ok:
        return 0
    return 1 if all(one.is_derived for one in report.findings) else 3
