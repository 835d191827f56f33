"""What ``worldctl submit`` and ``worldctl project`` share: where a proposal starts, and waiting for its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from world.clock import SystemClock
from world.errors import LogBusyError, WaitTimeoutError
from worldprotocol.cli.support.command_context import execution_option

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.api.realm import Realm

__all__ = ["check_base", "start_of", "stay", "submission_options", "wait_for"]

SETTLE_S: Final = 1.0
"""Seconds between two attempts at doing what is due, at least."""


def _seconds(context: click.Context, parameter: click.Parameter, value: float) -> float:
    if not value >= 0:  # nor NaN
        raise click.BadParameter(f"{value} is no time to wait; take a number of seconds from 0 up.")
    return value


def submission_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say where a proposal starts, and how long the command waits for it."""
    for option in (
        execution_option,
        click.option(
            "--wait",
            type=float,
            default=0,
            callback=_seconds,
            metavar="SECONDS",
            help="Stay so long, at most, until what waits for leases or people has ended.",
        ),
        click.option(
            "--stop-on-error", is_flag=True, help="Stop at the first line that is refused, rejected or failed."
        ),
        click.option("--allow-failed", is_flag=True, help="Accept a --base whose execution failed."),
        click.option(
            "--base",
            metavar="WORLD",
            help="Start from a world: an id, a branch, HEAD; without --branch it forks.",
        ),
        click.option("--branch", metavar="NAME", help="The branch to move; the active one."),
    ):
        function = option(function)
    return function


def check_base(options: dict[str, Any], *, is_many: bool) -> None:
    """Refuse combinations of ``--base`` that mean nothing.

    Args:
        options: the options.
        is_many: whether there is a file of lines.

    Raises:
        click.UsageError: with what to give instead.
    """
    if options["allow_failed"] and options["base"] is None:
        raise click.UsageError("--allow-failed goes with --base WORLD.")
    if options["base"] is not None and is_many:
        raise click.UsageError("--base names the start of one submission; for many make a branch and name it.")


def start_of(world: Realm, options: dict[str, Any]) -> dict[str, Any]:
    """Return where a proposal starts, as ``Realm.act`` and ``Realm.project`` take it."""
    from worldprotocol.api.lookup.id_lookup import world_id

    start: dict[str, Any] = {"branch": options["branch"], "allow_failed_base": options["allow_failed"]}
    if options["base"] is not None:
        start["base_world"] = world_id(world, options["base"])
    return start


def wait_for(world: Realm, proposal: Proposal, seconds: float) -> Proposal:
    """Return a proposal as it is when it has ended, or the time is over.

    Args:
        world: the open realm.
        proposal: as it is now.
        seconds: how long to wait at most; 0 does not wait.

    Raises:
        KeyboardInterrupt: with the message that the proposal continues.
    """
    if proposal.is_terminal or not seconds:
        return proposal
    name = proposal.proposal_id
    try:
        stay(world, [name], seconds)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"Interrupted: proposal {name} is in the log and may still be carried out; `worldctl show {name}` shows "
            "its state."
        ) from None
    return world.proposal(name)


def stay(world: Realm, proposals: Iterable[str], seconds: float) -> None:
    """Return when none of the proposals is open any more, or the time is over; meanwhile do what is due.

    Args:
        world: open for acting; a command has no timer that does what is due.
        proposals: their ids.
        seconds: how long at most; 0 returns at once.

    Raises:
        WorldProtocolError: what ``Realm.wait`` and ``Realm.settle`` raise, but not ``LOG_BUSY``.
    """
    until, settled = time.monotonic() + seconds, 0.0
    for proposal_id in proposals:
        while not _has_ended(world, proposal_id, min(SETTLE_S, until - time.monotonic())):
            if (now := time.monotonic()) >= until:
                return
            due = world.archive.peek(lambda realm: realm.next_due())
            if due is not None and due <= SystemClock().now_ms() and now - settled >= SETTLE_S:
                settled = now
                with suppress(LogBusyError):
                    world.settle()


def _has_ended(world: Realm, proposal_id: str, seconds: float) -> bool:
    try:
        world.wait(proposal_id, max(0.0, seconds))
    except WaitTimeoutError:
        return False
    return True
