"""Remark on held proposals, which wait for an adoption and for no person."""

from __future__ import annotations

from typing import TYPE_CHECKING

from world.state.proposal import held_words
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from world.state.realm_view import RealmView
    from worldprotocol.cli.support.command_context import CommandContext

__all__ = ["held_remark"]

SHOWN = 10
"""Maximum number of proposals in one remark."""


def held_remark(desk: CommandContext, realm: RealmView) -> None:
    """Print which proposals are held and why, on stderr; nothing where none is."""
    events = [event for name in realm.held if (event := realm.proposals[name].held) is not None]
    if not events:
        return
    lines = [f"  {event.proposal_id} held: {held_words(event)}" for event in events[:SHOWN]]
    more = [f"  and {len(events) - SHOWN} more"] if len(events) > SHOWN else []
    are = "is" if len(events) == 1 else "are"
    head = (
        f"{counted(len(events), 'proposal')} {are} held until the change is adopted (`worldctl policy adopt`, "
        "`worldctl adopt`), or a program with the code in force opens the realm:"
    )
    desk.out.remark("\n".join([head, *lines, *more]))
