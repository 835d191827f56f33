"""``worldctl realm``: realms of a directory, where they are, and moving, archiving and restoring them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.commands.admin.init import found_in, founding_options
from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from worldprotocol.directory.directory import RealmDirectory
    from worldprotocol.directory.events import RealmEvent, Work
    from worldprotocol.directory.listing import ListedRealm

_by = click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the records name.")
_ABANDON = "Give up what was begun and did not end; the realm stays where it was."


@click.group("realm", cls=Group)
def realm() -> None:
    """Create, list, move, archive and restore the realms of a directory (--directory, WORLDCTL_DIRECTORY).

    See docs/realms.md.
    """


@realm.command("create")
@click.argument("name")
@click.option("--place", "place", required=True, metavar="ADDRESS", help="Where the log is, without a password.")
@click.option("--dir", "folder", type=click.Path(file_okay=False), help="Folder of world.toml; NAME by default.")
@founding_options
@with_desk
def create(desk: CommandContext, name: str, place: str, folder: str | None, **options: Any) -> None:
    """Found a realm as `worldctl init` does, with its log at ADDRESS, and list it; creates the directory, too."""
    from worldprotocol.directory.directory_log import recorded_address

    by = options["by"]
    with _directory(desk, founded_by=by) as directory:
        directory.check_unlisted(name, place)
        desk.log = recorded_address(place)
        rendered, words = found_in(desk, Path(folder or name), options)
        entry = directory.add(name, place, by=by)
    desk.out.tell(rendered | {"name": name, "place": entry.place}, *words, f"Listed as {name} at {entry.place}.")


@realm.command("add")
@click.argument("name")
@click.option("--place", "place", required=True, metavar="ADDRESS", help="Where its log is, without a password.")
@_by
@with_desk
def add(desk: CommandContext, name: str, place: str, by: str) -> None:
    """List a realm that exists; creates the directory where it does not exist."""
    with _directory(desk, founded_by=by) as directory:
        entry = directory.add(name, place, by=by)
    desk.out.tell({"name": name, "place": entry.place, "logId": entry.log_id}, f"Listed as {name} at {entry.place}.")


@realm.command("list")
@with_desk
def list_realms(desk: CommandContext) -> int:
    """List the realms: place, state, writer epoch and number of events; exit code 1 where a place does not answer."""
    for option in ("log", "realm"):
        if option in desk.typed:
            raise click.UsageError(f"This lists all realms of the directory; leave --{option} out.")
    with _directory(desk) as directory:
        found = directory.listed()
    if desk.json:
        desk.out.document([one.to_wire() for one in found])
    else:
        heads = ("realm", "state", "place", "epoch", "events")
        desk.out.table(heads, map(_row, found), empty="The directory lists no realm.")
        for one in found:
            if one.error is not None:
                desk.out.warn(f"{one.entry.name}: {one.error.message} [{one.error.code}]")
    return 1 if any(one.error is not None for one in found) else 0


def _row(one: ListedRealm) -> tuple[Any, ...]:
    entry = one.entry
    state = entry.status if entry.target is None else f"{entry.status} to {entry.target}"
    if one.error is not None:
        state = f"{state}, no answer"
    elif one.is_closed and entry.status == "open":
        state = "closed; the next command opens it"
    events = entry.size if entry.archive else one.events
    return entry.name, state, entry.archive or entry.place, one.epoch, events


@realm.command("move")
@click.argument("name")
@click.option("--to", metavar="ADDRESS", help="The new place, without a password; a log that does not exist.")
@click.option("--abandon", is_flag=True, help=_ABANDON)
@_by
@with_desk
def move(desk: CommandContext, name: str, to: str | None, *, abandon: bool, by: str) -> None:
    """Move a realm to another database while it is used; its writers continue at the new place.

    The same command continues a move that was interrupted.
    """
    if (to is None) == (not abandon):
        raise click.UsageError("Give either --to ADDRESS or --abandon.")
    with _directory(desk) as directory:
        if to is None:
            _abandon(desk, directory, name, "move", by)
            return
        with desk.progress("Copying") as progress:
            done = directory.move(name, to, by=by, progress=progress, on_step=_steps(desk))
    head = done.head.to_wire()
    rendered = {"name": name, "from": done.source, "place": done.target, "head": head, "closedMs": done.closed_ms}
    words = [f"{name} is at {done.target}; tree head {done.head} at both places."]
    if done.closed_ms is not None:
        words.append(f"No writer was open for {done.closed_ms:,.0f} ms; copied meanwhile: {done.copied:,}.")
    desk.out.tell(rendered, *words)


def _steps(desk: CommandContext) -> Callable[[str], None]:
    said = {
        "begun": "The directory has recorded the move; copying.",
        "copied": "Copied what was there; closing the old place to writers.",
        "closed": "The old place is closed; copying the rest.",
        "compared": "Both places have the same tree head.",
        "moved": "The directory has recorded the new place; opening it.",
    }
    return lambda step: desk.out.remark(said[step]) if step in said else None


@realm.command("archive")
@click.argument("name")
@click.argument("folder", required=False, type=click.Path(file_okay=False))
@click.option("--abandon", is_flag=True, help=_ABANDON)
@_by
@with_desk
def archive(desk: CommandContext, name: str, folder: str | None, *, abandon: bool, by: str) -> None:
    """Close a realm, write its whole log and a checkpoint into FOLDER, and read them back.

    The log stays where it was, closed to writers. The same command continues what was interrupted.
    `worldctl archive` instead writes the beginning of an open log.
    """
    if (folder is None) == (not abandon):
        raise click.UsageError("Give either FOLDER or --abandon.")
    from worldprotocol.directory.archiving import archive_files

    with _directory(desk) as directory:
        if folder is None:
            _abandon(desk, directory, name, "archive", by)
            return
        with desk.progress("Archiving") as progress:
            head = directory.archive(name, folder, by=by, progress=progress)
    files = [str(file) for file in archive_files(folder, name)]
    rendered = {"name": name, "files": files, "head": head.to_wire()}
    desk.out.tell(rendered, f"{name} is archived: {counted(head.size, 'event')} in {files[0]}; tree head {head}")


@realm.command("restore")
@click.argument("name")
@click.option("--place", "place", metavar="ADDRESS", help="Where the log will be, without a password.")
@click.option("--abandon", is_flag=True, help="Give up a restoration that did not end; the realm stays archived.")
@_by
@with_desk
def restore(desk: CommandContext, name: str, place: str | None, *, abandon: bool, by: str) -> None:
    """Import an archived realm at ADDRESS, compare its tree head with the recorded one, and open it to writers."""
    if (place is None) == (not abandon):
        raise click.UsageError("Give either --place ADDRESS or --abandon.")
    with _directory(desk) as directory:
        if place is None:
            _abandon(desk, directory, name, "restore", by)
            return
        with desk.progress("Restoring") as progress:
            head = directory.restore(name, place, by=by, progress=progress)
        entry = directory.entry(name)
    rendered = {"name": name, "place": entry.place, "head": head.to_wire()}
    desk.out.tell(rendered, f"{name} is at {entry.place}; tree head {head}, as it was archived.")


@realm.command("verify")
@click.option("--against", multiple=True, metavar="SIZE:ROOT", help="A tree head of the directory saved elsewhere.")
@with_desk
def verify(desk: CommandContext, against: tuple[str, ...]) -> int:
    """Check the log of the directory, and print its tree head; exit code 3 where it is damaged.

    The realms are verified by `worldctl --realm NAME verify`.
    """
    from worldprotocol.api.bootstrap import TreeHead

    with _directory(desk) as directory:
        findings = directory.verify([TreeHead.parse(one) for one in against])
        head = directory.log.log.stored_head()
    for one in findings:
        desk.out.warn(f"{one.position}  {one.code}  {one.message}")
    found = [{"code": str(one.code), "position": one.position, "message": one.message} for one in findings]
    words = f"{'damaged' if findings else 'sound'}: {counted(head.size, 'event')}; tree head {head}"
    desk.out.tell({"findings": found, "head": head.to_wire()}, words)
    return 3 if findings else 0


@realm.command("open")
@_by
@with_desk
def open_(desk: CommandContext, by: str) -> None:
    """Open a log to writers at another place than before: a copy whose original is lost for good.

    The log is that of --log. One that was moved or archived is opened by its directory alone.
    """
    from world.masking import masked
    from worldprotocol.directory.writers import open_copy

    address = desk.address()
    epoch = open_copy(address, by)
    desk.out.tell({"log": masked(address), "epoch": epoch}, f"Writer epoch {epoch} began at this place.")


@realm.command("history")
@click.argument("name")
@with_desk
def history(desk: CommandContext, name: str) -> None:
    """Show what the directory has recorded of a realm: where it was, what was done with it, when and by whom."""
    from worldprotocol.api.proposal_summary import moment

    with _directory(desk) as directory:
        found = directory.history(name)
    rows = ((position, moment(event.at), event.by, _event_words(event)) for position, event in found)
    tell_table(desk, [_event_form(*one) for one in found], ("event", "at", "by", "what"), rows)


def _event_form(position: int, event: RealmEvent) -> dict[str, Any]:
    import msgspec

    return {"position": position, "topic": event.TOPIC, **msgspec.to_builtins(event)}


def _event_words(event: RealmEvent) -> str:
    what = event.TOPIC.partition(".")[2].replace("_", " ")
    work, place = getattr(event, "work", None), None
    for name in ("place", "target", "folder"):
        place = place or getattr(event, name, None)
    size = getattr(event, "size", None)
    parts = (what, work, place, None if size is None else f"after {counted(size, 'event')}")
    return ", ".join(part for part in parts if part)


def _directory(desk: CommandContext, *, founded_by: str | None = None) -> RealmDirectory:
    """Open the directory that was named; with ``founded_by``, create it where it does not exist."""
    if desk.directory is None:
        raise click.UsageError("Name the directory with --directory ADDRESS, or in WORLDCTL_DIRECTORY.")
    from worldprotocol.directory.directory import RealmDirectory

    if founded_by is not None:
        return RealmDirectory.found(desk.directory, by=founded_by)
    return RealmDirectory.open(desk.directory)


def _abandon(desk: CommandContext, directory: RealmDirectory, name: str, work: Work, by: str) -> None:
    entry = directory.abandon(name, work, by=by)
    where = entry.archive or entry.place
    desk.out.tell({"name": name, "abandoned": work, "state": entry.status, "place": where}, f"{name} is at {where}.")
