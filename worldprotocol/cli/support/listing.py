"""Lists that commands print, and the remark on held proposals, which wait for an adoption and for no person."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.output import counted

if TYPE_CHECKING:
    from world.state.realm_view import RealmView

__all__ = ["held_remark", "tell_table"]

HELD_SHOWN = 10
"""Maximum number of proposals in one remark."""


def tell_table(
    desk: CommandContext, value: Any, heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "nothing"
) -> None:
    """Print a list: as one document with --json, otherwise as a table.

    Args:
        desk: the command's context.
        value: the list, as JSON.
        heads: heads of the columns.
        rows: cells of the table; not taken where JSON is printed.
        empty: remark in place of a table without rows.
    """
    if desk.json:
        desk.out.document(value)
    else:
        desk.out.table(heads, rows, empty=empty)


def held_remark(desk: CommandContext, realm: RealmView) -> None:
    """Print which proposals are held and why, on stderr; nothing where none is."""
    from world.state.proposal import held_words

    found = (realm.proposals[name].held for name in realm.held)
    events = [event for event in found if event is not None and event.cause != "caller"]
    if not events:
        return
    lines = [f"  {event.proposal_id} held: {held_words(event)}" for event in events[:HELD_SHOWN]]
    more = [f"  and {len(events) - HELD_SHOWN} more"] if len(events) > HELD_SHOWN else []
    are = "is" if len(events) == 1 else "are"
    head = (
        f"{counted(len(events), 'proposal')} {are} held until the change is adopted (`worldctl policy adopt`, "
        "`worldctl adopt`), or a program with the code in force opens the realm:"
    )
    for line in (head, *lines, *more):
        desk.out.remark(line)
