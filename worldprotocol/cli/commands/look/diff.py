"""``worldctl diff``: the differences of two worlds with their causes, or the first difference of two logs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from world.model.record import to_wire
from worldprotocol.cli.commands.look.blame import cut
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import world_at

if TYPE_CHECKING:
    from world.read_models.archive import Archive
    from world.read_models.diff import Compared
    from world.read_models.log_differences import Parted
    from world.read_models.provenance import Cause

DAMAGED: Final = 3
"""Exit code where one of two logs is damaged from the event on in which they differ."""

SHOWN: Final = 20
"""Of what follows from a difference, how many of a kind people are shown; --json has all."""

MAKERS: Final = 4
"""Worlds that people are shown behind one change."""


@command("diff")
@click.argument("a")
@click.argument("b")
@click.option("--logs", is_flag=True, help="A and B are two logs: addresses, or exported files.")
def diff(desk: CommandContext, a: str, b: str, logs: bool) -> int:
    """Compare two worlds by path, with the cause of each difference on both sides since their common ancestor.

    A and B are points in the past: a world, a proposal, a branch, HEAD, an event's position or a time.

    With --logs it compares two logs: the first event in which they differ, field by field, and what follows from it:
    which proposals, worlds and heads after it differ, and whether they depend on it. Exit code 1 on differences, and 3
    where one of the logs is damaged from there on.
    """
    return _diff_logs(desk, a, b) if logs else _diff_worlds(desk, a, b)


def _diff_worlds(desk: CommandContext, a: str, b: str) -> int:
    from world.read_models.diff import compare

    with desk.look() as world:
        found = compare(world.archive, world_at(world, a)[0], world_at(world, b)[0])
    wire = {
        "a": _world(found, "a"),
        "b": _world(found, "b"),
        "commonAncestor": found.ancestor,
        "same": found.same,
        "changes": [one.to_wire() for one in found.differences],
    }
    desk.out.tell(wire, *_words(found))
    return 0 if found.same else 1


def _world(found: Compared, side: str) -> dict[str, Any]:
    sealed = found.a if side == "a" else found.b
    return {
        "worldId": sealed.world_id,
        "branch": sealed.branch,
        "height": sealed.height,
        "outcome": sealed.outcome,
        "schemaHash": sealed.schema_hash,
        "contentId": sealed.content_id,
        "error": to_wire(sealed.error),
    }


def _words(found: Compared) -> Iterator[str]:
    for name, sealed in (("a", found.a), ("b", found.b)):
        failed = "" if sealed.error is None else f", failed: {sealed.error.code}"
        yield f"{name}  world {sealed.world_id}, height {sealed.height}, made on {sealed.branch}{failed}"
    yield f"   common ancestor {_ancestor(found)}"
    if found.a.schema_hash != found.b.schema_hash:
        yield f"   schema {found.a.schema_hash[:12]} in a, {found.b.schema_hash[:12]} in b"
    if not found.differences:
        yield "no difference in the data"
    for one in found.differences:
        yield f"{one.change.path}: {_value(one.change.before)} -> {_value(one.change.after)}"
        for name, causes in (("a", one.by_a), ("b", one.by_b)):
            for cause in causes[:MAKERS]:
                yield f"  in {name}  {in_one_line(cause)}"
            if len(causes) > MAKERS:
                yield f"  in {name}  and {counted(len(causes) - MAKERS, 'other world')}"


def _ancestor(found: Compared) -> str:
    if found.ancestor == found.a.world_id:
        return "is a itself" if found.ancestor == found.b.world_id else "is a: b descends from it"
    return "is b: a descends from it" if found.ancestor == found.b.world_id else found.ancestor


def in_one_line(cause: Cause) -> str:
    """Return the cause of a world in one line."""
    wire = cause.to_wire()
    if cause.submitted is None:
        return f"world {wire['worldId'][:12]}: the realm was founded with it"
    decision = wire.get("decision")
    why = "" if decision is None else f"; {decision['decision']} by {decision['authority']}: {decision['reason']}"
    actor = wire["actor"]
    return (
        f"world {wire['worldId'][:12]}, proposal {wire['proposalId']}: {wire['action']} by {actor['actorId']} "
        f"({actor['kind']}){why}"
    )


def _value(value: Any) -> str:
    from world.read_models.diff import ABSENT

    return "absent" if value is ABSENT else cut(value)


def _diff_logs(desk: CommandContext, a: str, b: str) -> int:
    from world.read_models.log_differences import compare_logs

    with ExitStack() as open_logs:
        left, right = (_opened(desk, open_logs, address) for address in (a, b))
        with desk.progress("Comparing") as progress:
            found = compare_logs(left, right, progress=progress)
        sizes = [one.log.head().size for one in (left, right)]
    rendered = {"a": None, "b": None} if found is None else found.to_wire()
    words = [f"the same {counted(sizes[0], 'event')}"] if found is None else _parted(found, sizes)
    desk.out.tell({"same": found is None, "sizes": {"a": sizes[0], "b": sizes[1]}, **rendered}, *words)
    return 0 if found is None else DAMAGED if any(found.damage) else 1


def _opened(desk: CommandContext, open_logs: ExitStack, address: str) -> Archive:
    """Open a log, or an export, which is read into a log that is gone afterwards."""
    from world.read_models.archive import Archive
    from worldprotocol.api.read_only import open_for_reading

    if not _is_export(address):
        return Archive(open_logs.enter_context(open_for_reading(address)))
    from tempfile import TemporaryDirectory

    from worldprotocol.export.jsonl import import_log

    copy = str(Path(open_logs.enter_context(TemporaryDirectory()), "copy.db"))
    with Path(address).open("rb") as lines, desk.progress(f"Reading {address}") as progress:
        import_log(lines, copy, progress=progress)
    return Archive(open_logs.enter_context(open_for_reading(copy)))


def _is_export(address: str) -> bool:
    path = Path(address)
    if "://" in address or not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(1) == b"{"


def _parted(found: Parted, sizes: list[int]) -> Iterator[str]:
    yield f"the same {counted(found.position - 1, 'event')}, of {sizes[0]} in a and {sizes[1]} in b"
    yield f"event {found.position} differs"
    for name, event in zip("ab", found.events, strict=True):
        rendered = (
            "the log ends before it" if event is None else f"{event.topic} of stream {event.stream}, {event.version}"
        )
        yield f"{name}  {rendered}".encode("utf-8", "replace").decode()  # a damaged log may hold half characters
    for change in found.fields:
        yield f"  {change.path}: {_value(change.before)} -> {_value(change.after)}"
    for name, wrong in zip("ab", found.damage, strict=True):
        if wrong is not None:
            yield f"{name} is damaged, so what follows is not compared. {wrong}"
    for what, those in (("proposal", found.proposals), ("world", found.worlds), ("head", found.heads)):
        depend = sum(depends for *_, depends in those)
        if those:
            differ = "differs" if len(those) == 1 else "differ"
            yield f"then {counted(len(those), what)} {differ}, {depend} depending on it (*)"
        for name, left, right, depends in sorted(those, key=lambda one: not one[3])[:SHOWN]:
            yield f"  {'*' if depends else '-'} {name}: {_side(left)} -> {_side(right)}"
        if len(those) > SHOWN:
            yield f"  and {len(those) - SHOWN} more; --json has all"


def _side(rendered: Any) -> str:
    if rendered is None or isinstance(rendered, str):
        return rendered or "absent"
    names = ("action", "actorId", "status", "outcome", "worldId", "error", "reason")
    return " ".join(str(rendered[name]) for name in names if rendered.get(name) is not None)
