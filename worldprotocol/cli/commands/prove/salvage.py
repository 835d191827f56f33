"""``worldctl salvage``: what is left of a damaged log."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.signing import trusted, trusting_options

if TYPE_CHECKING:
    from worldprotocol.export.proofs.exports import Spans
    from worldprotocol.export.salvage.salvage import Salvaged

SHOWN_SPANS = 20


@command("salvage")
@click.argument("source", required=False, metavar="[LOG|EXPORT]")
@click.option("-o", "--output", "output", required=True, metavar="FILE", help="Where the sound beginning goes.")
@click.option(
    "--against",
    multiple=True,
    metavar="SIZE:ROOT|FILE",
    help="A tree head kept elsewhere, as for verify: it proves more than those in the log.",
)
@click.option(
    "--unproven",
    is_flag=True,
    help="Extend the beginning beyond the last tree head that agrees, perhaps into the middle of a commit.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
@trusting_options
def salvage(
    desk: CommandContext,
    source: str | None,
    output: str,
    against: tuple[str, ...],
    unproven: bool,
    force: bool,
    vkeys: tuple[str, ...],
    origin: str | None,
) -> int:
    """Save what is left of a damaged log, file or export; it is only read, and nothing in it changes.

    Its longest sound beginning is written to FILE, as an export that `worldctl import` reads. What else is intact goes
    to FILE.rest.jsonl, each event with what proves it: "saved" (a tree head kept elsewhere), "stored" (one in the log),
    or "none" (its own leaf hash alone). Exit code 3 where something is lost or changed.
    """
    from world.errors import RefusedError
    from worldprotocol.cli.commands.prove.verify import Saved
    from worldprotocol.export.salvage.salvage import is_source
    from worldprotocol.export.salvage.salvage import salvage as save

    saved = Saved(trusted(vkeys, origin))
    for given in against:
        saved.add(given)
    saved.demand_signatures()
    out, rest = Path(output), Path(f"{output}.rest.jsonl")
    address = source or desk.address()
    for target in (out, rest):
        if is_source(target, address):
            raise RefusedError(
                ErrorCode.INVALID_TARGET, f"{target} belongs to the log itself; name another file.", path=output
            )
        if target.exists() and not force:
            raise RefusedError(
                ErrorCode.INVALID_TARGET, f"{target} is there already; --force replaces it.", path=output
            )
    try:
        with desk.progress("Salvaging") as progress:
            done = save(address, out, rest, against=saved.heads, unproven=unproven, progress=progress)
        for target, is_written in ((out, done.head.size > 0), (rest, any(done.rest.values()))):
            if not is_written:  # what --force would have replaced belongs to another salvage
                target.unlink(missing_ok=True)
    except OSError as error:
        raise RefusedError(
            ErrorCode.INVALID_TARGET, f"{output} cannot be written: {error.strerror}.", path=output
        ) from None
    others = sum(done.rest.values())
    files = {"file": str(out) if done.head.size else None, "restFile": str(rest) if others else None}
    desk.out.tell(done.to_wire() | files | saved.to_wire(), *_words(done, out, rest, unproven))
    saved.remark(desk)
    if not done.is_whole:
        _remark_cut(desk, address)
    return 0 if done.is_whole else 3


def _remark_cut(desk: CommandContext, address: str) -> None:
    """Remark that a log was cut, where that can be read: what is missing then is in its archives."""
    from world.errors import WorldProtocolError
    from world.read_models.live.sealed_snapshot import archived_event
    from worldprotocol.api.read_only import open_for_reading

    with suppress(WorldProtocolError), open_for_reading(address) as log:
        event = archived_event(log)
        if event is not None:
            desk.out.remark(
                f"This log was cut: its archives have the contents of events 1 to {event.upto}, which are not lost by "
                "damage. To have them in a log, import the archives with `worldctl import`."
            )


def _words(done: Salvaged, out: Path, rest: Path, unproven: bool) -> list[str]:
    under = {"saved": "under a tree head kept elsewhere", "stored": "under a tree head of the log"}
    size = counted(done.expected, "event")
    if done.head.size:
        proof = under.get(done.vouched, "under no tree head")
        saved = f"saved: {counted(done.head.size, 'event')} of {done.expected} in {out}, {proof}"
        lines = [saved, f"tree head {done.head}"]
    elif done.beginning and not unproven:
        hint = f"the first {done.beginning} are what their leaf hashes say, and --unproven saves them"
        lines = [f"saved: no beginning of the {size} is under a tree head; {hint} as far as they are sound"]
    else:
        lines = [f"saved: no sound beginning of the {size}"]
    if others := sum(done.rest.values()):
        proven = f"{done.rest['saved']} proven by a tree head kept elsewhere, {done.rest['stored']} by one of the log"
        where = "intact behind it" if done.head.size else "intact"
        lines.append(
            f"{where}: {counted(others, 'event')} in {rest}: {proven}, {done.rest['none']} by its own leaf hash alone"
        )
    for name, spans in (("lost", done.lost), ("changed", done.changed), ("unreadable", done.unreadable)):
        if spans.count:
            lines.append(f"{name}: {counted(spans.count, 'event')}: {_listed(spans)}")
    lines += [f"contradicted: the tree head {head}" for head in done.contradicted]
    if done.bad_lines:
        lines.append(f"lines that say nothing: {', '.join(map(str, done.bad_lines[:SHOWN_SPANS]))}")
    lines += [f"not taken: {why}" for why in done.cut]
    return [*lines, "nothing is lost" if done.is_whole else "not everything could be saved"]


def _listed(spans: Spans) -> str:
    rendered = [str(first) if first == last else f"{first}-{last}" for first, last in spans.spans[:SHOWN_SPANS]]
    return ", ".join(rendered) + (", ..." if len(spans.spans) > SHOWN_SPANS else "")
