"""``worldctl feed``: deliver events to other programs, and show how far each feed is."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.signals import next_note, noted_signals

if TYPE_CHECKING:
    from worldprotocol.export.feeds.delivery import FeedReport
    from worldprotocol.export.feeds.running import ConfiguredFeed, FeedRun

_Ended = tuple["FeedRun", BaseException | None]


@click.group("feed", cls=Group)
def feed() -> None:
    """Deliver events to other programs, and show how far each feed is; see docs/feeds.md."""


@feed.command("run")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--once", is_flag=True, help="End when the events of the log are delivered, or the feeds are paused.")
@with_desk
def run(desk: CommandContext, names: tuple[str, ...], once: bool) -> int:
    """Deliver the feeds of world.toml, or those that are named: first what is in the log, then each new event.

    Ctrl-C and SIGTERM end it after the requests that are under way; a second one ends it at once. However it ends, the
    next run continues with the first event that was not delivered. With --json, each step is a line. Exit code 1 where
    a feed is paused.
    """
    from world.clock import SystemClock
    from worldprotocol.export.feeds.running import FeedRun, feed_status

    feeds = _feeds(desk, names)
    if not feeds:
        raise click.UsageError("[feeds] in world.toml has no feed; docs/feeds.md shows one.")
    notes: SimpleQueue[int | _Ended] = SimpleQueue()
    total = sum(feed_status(one)["events"] for one in feeds)
    with desk.progress("Delivering") as progress:
        printer = _Printer(desk, total, progress)
        runs = [FeedRun(one, SystemClock(), once=once, on_report=printer.take, place=_place(desk)) for one in feeds]
        with noted_signals(notes.put):
            for one in runs:
                threading.Thread(target=_run, args=(one, notes), name=f"feed {one.feed.name}").start()
            errors = _await(desk, runs, notes)
    if errors:
        raise errors[0]
    printer.tell_sums()
    return 1 if any(feed_status(one)["state"] == "paused" for one in feeds) else 0


def _run(one: FeedRun, notes: SimpleQueue[int | _Ended]) -> None:
    error: BaseException | None = None
    try:
        one.run()
    except BaseException as raised:  # noqa: BLE001 - raised again in the main thread
        error = raised
    notes.put((one, error))


def _await(desk: CommandContext, runs: Sequence[FeedRun], notes: SimpleQueue[int | _Ended]) -> list[BaseException]:
    """Return the errors with which runs ended, when all have ended; an error of one stops all."""
    from worldprotocol.cli.program import INTERRUPTED

    errors: list[BaseException] = []
    left, signals = len(runs), 0
    while left:
        note = next_note(notes)
        if isinstance(note, int):
            signals += 1
            if signals > 1:
                os._exit(INTERRUPTED)  # as safe as any end: what is not stored is delivered again
            desk.out.remark("Ending after the requests that are under way.")
        else:
            left -= 1
            errors += [] if note[1] is None else [note[1]]
        if isinstance(note, int) or errors:
            for one in runs:
                one.stop()
    return errors


class _Printer:
    """Prints the steps of all feeds, one line at a time.

    Args:
        desk: the options.
        total: sum of the positions at which the feeds have delivered what is in the log.
        progress: the progress bar.
    """

    def __init__(self, desk: CommandContext, total: int, progress: Callable[[int, int], None]) -> None:
        """Begin before the first step."""
        self._desk = desk
        self._total = total
        self._progress = progress
        self._lock = threading.Lock()
        self._sums: dict[str, int] = {}
        self._positions: dict[str, int] = {}

    def take(self, report: FeedReport) -> None:
        """Print a step; deliveries are counted, and printed as JSON only."""
        with self._lock:
            self._sums[report.feed] = self._sums.get(report.feed, 0) + report.events
            self._positions[report.feed] = report.position
            if self._desk.json:
                self._desk.out.line(_report_form(report))
            elif report.kind == "delivered":
                done = sum(self._positions.values())
                self._progress(done, max(done, self._total))
            else:
                self._desk.out.remark(_report_words(report))

    def tell_sums(self) -> None:
        """Say how many events each feed delivered."""
        for name, events in sorted(self._sums.items()):
            self._desk.out.remark(f"{name}: {counted(events, 'event')} delivered.")


def _report_form(report: FeedReport) -> dict[str, Any]:
    form: dict[str, Any] = {"what": report.kind, "feed": report.feed, "position": report.position}
    if report.kind == "delivered":
        form["events"] = report.events
    if report.failure is not None:
        failure = {"code": str(report.failure.code), "message": report.failure.message}
        form |= {"failure": failure, "attempts": report.attempts}
    return form | ({"waitMs": report.wait_ms} if report.kind == "failed" else {})


def _report_words(report: FeedReport) -> str:
    if report.failure is None:
        return f"{report.feed}: resumed after event {report.position}."
    words = f"{report.feed}: {report.failure.message}"
    if report.kind == "paused":
        return f"{words} It is paused after event {report.position}; `worldctl feed resume {report.feed}` continues it."
    attempt = f"Attempt {report.attempts} of the message after event {report.position}"
    return f"{words} {attempt}; the next one in {report.wait_ms / 1_000:.1f} s."


@feed.command("list")
@with_desk
def list_feeds(desk: CommandContext) -> None:
    """List the feeds of world.toml: where each delivers to, and how far it is."""
    found = _statuses(desk, ())
    heads = ("feed", "format", "to", "state", "position", "lag")
    rows = ((one["feed"], one["format"], one["target"], one["state"], one["position"], one["lag"]) for one in found)
    tell_table(desk, found, heads, rows, empty="[feeds] in world.toml is empty.")


@feed.command("status")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@with_desk
def status(desk: CommandContext, names: tuple[str, ...]) -> None:
    """Show position, lag, deliveries and the last failure of feeds; all by default.

    The lag is the number of events after the position; a feed that selects events may send none of them.
    """
    from worldprotocol.api.proposal_summary import moment as when

    found = _statuses(desk, names)
    if desk.json:
        desk.out.document(found)
        return
    for one in found:
        desk.out.text(f"{one['feed']}: {one['state']}; {one['format']} to {one['target']}")
        desk.out.text(f"  position {one['position']} of {one['events']}, lag {one['lag']}")
        if one["deliveredAt"] is not None:
            desk.out.text(f"  {counted(one['sent'], 'event')} delivered, the last at {when(one['deliveredAt'])}")
        if one["underWay"] is not None:
            desk.out.text(f"  under way: up to event {one['underWay']}, {one['attempts']} attempts failed")
        if one["lastFailure"] is not None:
            failure = one["lastFailure"]
            desk.out.text(f"  last failure at {when(failure['at'])}: {failure['message']} [{failure['code']}]")


@feed.command("resume")
@click.argument("name", metavar="NAME")
@with_desk
def resume(desk: CommandContext, name: str) -> None:
    """Let a paused feed continue with the message that was refused; a running process continues by itself."""
    from worldprotocol.export.feeds.running import opened_state

    [one] = _feeds(desk, (name,))
    with opened_state(one) as state:
        was_paused = state.progress().paused
        state.resume()
    words = f"{name} continues." if was_paused else f"{name} was not paused."
    desk.out.tell({"feed": name, "resumed": was_paused}, words)


def _feeds(desk: CommandContext, names: tuple[str, ...]) -> list[ConfiguredFeed]:
    from worldprotocol.export.feeds.running import configured_feeds

    chosen, is_placed = tuple(dict.fromkeys(names)), desk.placed is not None
    return configured_feeds(desk.settings(), desk.address(), chosen, is_placed=is_placed)


def _place(desk: CommandContext) -> Callable[[], str | None] | None:
    """Return what gives the present place of the realm; None where no directory places it."""
    from worldprotocol.cli.support.opening import place_after_move

    return None if desk.placed is None else partial(place_after_move, *desk.placed)


def _statuses(desk: CommandContext, names: tuple[str, ...]) -> list[dict[str, Any]]:
    from worldprotocol.export.feeds.running import feed_status

    return [feed_status(one) for one in _feeds(desk, names)]
