"""``worldctl verify``: whether the log is what it says it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from worldprotocol.cli.options import Desk, command

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
        compared = f", against {len(saved)} saved tree heads" if saved else ""
        what = f"{report.events} events, {report.worlds} worlds, {report.proposals} intents{compared}"
        if report.ok:
            desk.out.text(f"sound: {what}; tree head {report.head}")
        else:
            desk.out.text(
                f"{len(report.findings)} findings in {what}; the first bad event is {report.findings[0].position}"
            )
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
    return read_heads([given.encode()])
