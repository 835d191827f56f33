"""``worldctl recheck``: every recorded step, performed again by the code at hand."""

from __future__ import annotations

import click

from worldprotocol.cli.options import Desk, command
from worldprotocol.cli.output import counted


@command("recheck")
@click.option("--all", "every", is_flag=True, help="Go on after the first step that came out differently.")
@click.option("--upto", type=click.IntRange(min=1), metavar="POSITION", help="Stop at this event.")
def recheck(desk: Desk, every: bool, upto: int | None) -> int:
    """Project, judge, compute and hash again from the records, and report the first difference.

    No effect is made and no byte of the log changes. Code that is another one by now is said plainly.
    """
    from worldprotocol.cli.opening import composed
    from worldprotocol.recheck import open_to_recheck
    from worldprotocol.recheck import recheck as perform_again

    config = composed(desk)
    address = desk.log or config.log_address
    parts = {"projections": config.projections, "policies": config.policies, "folder": config.folder}
    opened = open_to_recheck(address, domain=config.domain or "", **parts)
    with opened as world, desk.progress("Rechecking") as progress:
        done = perform_again(world, upto=upto, every=every, progress=progress)
    if desk.json:
        desk.out.document(done.to_wire())
    else:
        for found in done.divergences:
            kind = "drift" if found.is_drift else "differs"
            desk.out.text(f"{found.position}\t{kind}\t{found.difference.code}\t{found.difference.message}")
        steps = ", ".join(f"{count} {name}" for name, count in sorted(done.steps.items())) or "nothing"
        words = "all as recorded" if done.ok else counted(len(done.divergences), "divergence")
        desk.out.text(f"performed again up to event {done.position}: {steps}; {words}")
    return 0 if done.ok else 1
