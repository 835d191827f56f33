"""``worldctl backups``: what was saved before leases to change it were granted, and giving it back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worldprotocol.runs.backups import BackupAdministration

DAY_MS: Final = 86_400_000
SHOWN: Final = 100
"""Entries that are listed for people."""


@click.group("backups", cls=Group)
def backups() -> None:
    """List, show, give back and remove backups of the workspace.

    A backup is made before leases to change something are granted; its id is that of the verdict that granted them.
    """


@backups.command("list")
@with_desk
def list_backups(desk: CommandContext) -> None:
    """List the backups, the oldest first.

    One is open while its leases, its run or its proposal are: then it is never removed.
    """
    from worldprotocol.api.proposal_summary import moment
    from worldprotocol.runs.backups import rendering_of

    with _looking(desk) as there:
        found = there.list()
        interrupted = there.interrupted
    rows = (
        (
            one.backup_id,
            moment(one.at) if one.at else None,
            one.note.get("agentId"),
            one.note.get("sessionId"),
            " ".join(one.resources),
            one.entries,
            one.size_bytes,
            "rollback interrupted" if one.backup_id in interrupted else one.state,
        )
        for one in found
    )
    heads = ("backup", "at", "agent", "session", "resources", "entries", "bytes", "state")
    tell_table(desk, [rendering_of(one) for one in found], heads, rows, empty="There is no backup.")


@backups.command("show")
@click.argument("backup")
@with_desk
def show_backup(desk: CommandContext, backup: str) -> None:
    """Show a backup, named by the unique beginning of its id, with all that it holds."""
    from worldprotocol.api.proposal_summary import moment
    from worldprotocol.runs.backups import rendering_of

    with _looking(desk) as there:
        name = _full_id(there, backup)
        info = there.get(name)
        entries = [_entry(one) for one in there.read(name).entries]
        holders = [one.to_wire() for one in there.holders(name)]
    if desk.json:
        desk.out.document({**rendering_of(info), "holders": holders, "files": entries})
        return
    desk.out.text(f"backup {info.backup_id}: {info.state}")
    desk.out.text(f"  when      {moment(info.at)}")
    desk.out.text(f"  whose     {info.note.get('agentId')}, session {info.note.get('sessionId')}")
    for resource in info.resources:
        desk.out.text(f"  of        {resource}")
    for one in holders:
        desk.out.text(f"  held by   {one['agentId']}, session {one['sessionId']}: {one['predicate']} {one['resource']}")
    desk.out.text(f"  holds     {info.entries} entries, {info.size_bytes} bytes")
    for one in entries[:SHOWN]:
        desk.out.text(f"    {one['kind']:<9}{one['mode']:>5}  {one['size']:>12}  {one['name']}")
    if len(entries) > SHOWN:
        desk.out.text(f"    and {len(entries) - SHOWN} more; --json has all")


@backups.command("restore")
@click.argument("backup")
@click.argument("resources", metavar="[RESOURCE]...", nargs=-1)
@click.option("--force", is_flag=True, help="Also where leases are held: changes made there are lost.")
@with_desk
def restore(desk: CommandContext, backup: str, resources: tuple[str, ...], *, force: bool) -> int:
    """Bring everything back to how it was when the backup was made, or only RESOURCE: a file, folder/**, FILE:/...

    What was created there since is removed. Refused while leases are held there. Exit code 1 when something could
    not be given back; asking again tries that again.
    """
    from worldprotocol.cli.support.opening import open_with_workspace

    with open_with_workspace(desk) as world:
        there = world.host.backups
        name = _full_id(there, backup)
        if force:
            for one in there.holders(name, resources):
                desk.out.remark(
                    f"Warning: {one.agent_id}, session {one.session_id}, holds {one.predicate} on {one.resource}; what "
                    "it did there is lost."
                )
        done = there.restore(name, resources, force=force)
    rendered: dict[str, Any] = {
        "backupId": name,
        "restored": done.restored,
        "removed": done.removed,
        "failed": done.failed,
    }
    rendered |= {"reasons": done.reasons} if done.reasons else {}
    if desk.json:
        desk.out.document(rendered)
    for word, names in (("restored", done.restored), ("removed", done.removed)):
        for one_name in names:
            desk.out.remark(f"{word} {one_name}")
    for one_name in done.failed:
        desk.out.warn(f"FAILED {one_name}: {done.reasons.get(one_name, 'it could not be given back')}")
    if not (done.restored or done.removed or done.failed):
        desk.out.remark("Everything was as it was saved.")
    return 1 if done.failed else 0


@backups.command("prune")
@click.option("--older-than", type=click.FloatRange(min=0), metavar="DAYS", help="Else as [workspace] keep_days says.")
@click.option("--max-bytes", type=click.IntRange(min=0), metavar="N", help="Else as [workspace] keep_bytes says.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; only list what would be removed.")
@with_desk
def prune(desk: CommandContext, older_than: float | None, max_bytes: int | None, *, dry_run: bool) -> None:
    """Remove backups that are too old, then the oldest until all together are small enough.

    Never one whose leases, run or proposal are open. It also happens by itself after a run, once an hour at most.
    """
    from worldprotocol.cli.support.opening import open_with_workspace
    from worldprotocol.cli.support.output import counted

    max_age_ms = None if older_than is None else int(older_than * DAY_MS)
    with open_with_workspace(desk) as world:
        done = world.host.backups.prune(max_age_ms=max_age_ms, max_bytes=max_bytes, dry_run=dry_run)
    wire = {
        "removed": done.removed,
        "objects": done.objects,
        "freedBytes": done.freed_bytes,
        "keptBytes": done.kept_bytes,
        "damaged": done.damaged,
        "dryRun": dry_run,
    }
    what = "would be" if dry_run else "was" if len(done.removed) == 1 else "were"
    words = f"{counted(len(done.removed), 'backup')} {what} removed, {done.freed_bytes} bytes; {done.kept_bytes} stay."
    desk.out.tell(wire, *done.removed, words)
    if done.damaged:
        desk.out.remark(
            f"{', '.join(done.damaged)} cannot be read; while that is so, no content is removed, for it may be theirs."
        )


@contextmanager
def _looking(desk: CommandContext) -> Iterator[BackupAdministration]:
    """Open the realm for looking only, and give the backups of its workspace."""
    from world.clock import SystemClock
    from worldprotocol.cli.support.opening import look_at_workspace
    from worldprotocol.runs.backups import BackupAdministration

    with look_at_workspace(desk) as (world, premises):
        yield BackupAdministration(world.archive, premises, SystemClock().now_ms(), None)


def _full_id(there: BackupAdministration, named: str) -> str:
    from worldprotocol.api.lookup.id_lookup import the_one

    return the_one(named, [one.backup_id for one in there.list()], what="backup")


def _entry(one: Any) -> dict[str, Any]:
    rendered = {"name": one.name, "kind": one.kind, "mode": f"{one.mode & 0o7777:o}", "size": one.size}
    rendered |= {"sha256": one.sha256} if one.sha256 else {}
    return rendered | ({"target": one.target} if one.target else {})
