"""``worldctl settle``: do what is due."""

from __future__ import annotations

from collections import Counter

from worldprotocol.cli.support.command_context import CommandContext, command, execution_option
from worldprotocol.cli.support.output import counted


@command("settle")
@execution_option
def settle(desk: CommandContext) -> None:
    """Finish abandoned executions and runs, decide what timed out, and start what is approved.

    Every command that acts does this when it opens the realm. This one also performs the effects that are offered to
    workers and have their handlers here, unless --no-execute is given.
    """
    from worldprotocol.api.executing.worker import perform_offered

    with desk.look() as world:
        before = world.log.head().size
    with desk.open() as world:
        perform_offered(world)
        topics = Counter(logged.topic for logged in world.log.read(before))
        left = Counter(one.status for one in world.realm().proposals.values())
    rendered = {"events": topics.total(), "topics": dict(topics), "open": dict(left)}
    still = ", ".join(f"{count} {status}" for status, count in left.items()) or "nothing"
    was = "was" if topics.total() == 1 else "were"
    desk.out.tell(rendered, f"{counted(topics.total(), 'event')} {was} added; open: {still}.")
