"""``worldctl verify``: whether the log is what it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.options import Desk, command
from worldprotocol.cli.output import counted

if TYPE_CHECKING:
    from worldprotocol.assemble import TreeHead


@command("verify")
@click.option(
    "--against",
    multiple=True,
    metavar="SIZE:ROOT|FILE",
    help="A tree head kept elsewhere, or a file that holds one on a line (an export too); may be given often.",
)
def verify(desk: Desk, against: tuple[str, ...]) -> int:
    """Check the tree, every event's form, references and hashes, and the index; name the first bad event.

    Exit code 3 where the log contradicts itself, 1 where only its index does.
    """
    from world.verify import verify as check_all

    saved = [head for given in against for head in _heads(given)]
    with desk.look() as world, desk.progress("Verifying") as progress:
        report = check_all(world.log, against=saved, progress=progress)
    if desk.json:
        desk.out.document(report.to_wire())
    else:
        for finding in report.findings:
            desk.out.text(f"{finding.position}\t{finding.code}\t{finding.message}")
        compared = f", against {counted(len(saved), 'saved tree head')}" if saved else ""
        parts = ((report.events, "event"), (report.worlds, "world"), (report.proposals, "intent"))
        what = ", ".join(counted(number, noun) for number, noun in parts) + compared
        if report.ok:
            desk.out.text(f"sound: {what}; tree head {report.head}")
        else:
            found = counted(len(report.findings), "finding")
            first = report.findings[0].position
            where = f"the first bad event is {first}" if first else "every event is as it was logged"
            desk.out.text(f"{found} in {what}; {where}")
    if report.ok:
        return 0
    return 1 if all(finding.code == "INDEX_DIFFERS" for finding in report.findings) else 3


def _heads(given: str) -> list[TreeHead]:
    from world.errors import Refused
    from worldprotocol.transfer import read_heads

    path = Path(given)
    if path.is_file():
        with path.open("rb") as lines:
            heads = read_heads(lines)
        if not heads:
            raise Refused("INVALID_TREE_HEAD", f"{given} holds no tree head; write one as SIZE:ROOT on a line.")
        return heads
    if ":" not in given:
        raise Refused("INVALID_TREE_HEAD", f"--against takes SIZE:ROOT or a file; there is no file {given}.")
    return read_heads([given.encode()])
