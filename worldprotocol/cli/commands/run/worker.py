"""``worldctl worker``: claim offered effects and perform them."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command, patience_option
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.signals import next_note, noted_signals

if TYPE_CHECKING:
    from worldprotocol.api.executing.remote_effects import RemoteEffects
    from worldprotocol.api.executing.worker import Worker, WorkerReport, WorkerSummary
    from worldprotocol.api.realm import Realm


@command("worker")
@click.option(
    "--handlers",
    multiple=True,
    metavar="MODULE",
    help="Handlers: a module or file.py, all of it, or with :attribute; repeatable. Those of world.toml are known.",
)
@click.option("--types", "types", multiple=True, metavar="TYPE", help="Only these types of effects; repeatable.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False),
    help="The folder of the realm, where its workspace is on this machine; else [workspace] of world.toml.",
)
@click.option("--server", metavar="URL", help="Claim over HTTP from a server: https://HOST:PORT, or unix:PATH.")
@click.option("--realm", "realm_name", default="main", metavar="NAME", help="The realm of the server; main by default.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with an API token, for --server.")
@patience_option
@click.option("--once", is_flag=True, help="End when nothing is offered any more.")
@click.option("--concurrency", type=click.IntRange(1, 256), default=1, metavar="N", help="Effects at the same time.")
@click.option("--name", metavar="NAME", help="Name of the worker in the log; host and process id by default.")
def worker(
    desk: CommandContext, handlers: tuple[str, ...], types: tuple[str, ...], workspace: str | None, **options: Any
) -> int:
    """Claim the offered effects of the realm, perform them, and report the results; any number of processes may.

    It prints a line for each step of an effect. Ctrl-C and SIGTERM end it when what is under way has ended; a second
    Ctrl-C gives that up: those claims lapse, and are offered again or are in doubt. Exit code 1 when an effect failed.
    With --server, the realm is on another machine; see docs/server.md, Remote workers.
    """
    from worldprotocol.api.telemetry.provider import traces_from_environment

    with traces_from_environment():
        return _work(desk, handlers, types, workspace, options)


def _work(
    desk: CommandContext,
    handlers: tuple[str, ...],
    types: tuple[str, ...],
    workspace: str | None,
    options: Mapping[str, Any],
) -> int:
    from worldprotocol.api.executing.worker import Worker
    from worldprotocol.api.waiting.outages import patiently
    from worldprotocol.cli.support.opening import open_for_workers, remote_effects

    server, token = options["server"], options["token_file"]
    if server is None and token is not None:
        raise click.UsageError("--token-file is for --server.")
    if server is not None and workspace is not None:
        raise click.UsageError("--workspace is for a realm on this machine; leave it out with --server.")
    opened: Realm | RemoteEffects
    if server is None:
        opened = patiently(
            lambda: open_for_workers(desk, handlers, workspace), options["patience"], "Opening the realm"
        )
    else:
        opened = remote_effects(desk, handlers, server, options["realm_name"], token)
    with opened as source:
        working = Worker(
            source,
            types=types or None,
            concurrency=options["concurrency"],
            name=options["name"],
            on_report=_printer(desk),
        )
        having = f" and the workspace {', '.join(working.workspaces)}" if working.workspaces else ""
        desk.out.remark(f"Worker {working.name} with {counted(len(working.types), 'type')} of effects{having}.")
        summary = _run(desk, working, once=options["once"])
        return _tell(desk, working, summary)


def _run(desk: CommandContext, working: Worker, *, once: bool) -> WorkerSummary:
    """Run the worker in a thread of its own; the main thread stops it when signals come."""
    ended: list[WorkerSummary | BaseException] = []
    signals: SimpleQueue[int | None] = SimpleQueue()

    def run() -> None:
        try:
            ended.append(working.run(once=once))
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            ended.append(error)
        signals.put(None)

    thread = threading.Thread(target=run, name="worldctl-worker", daemon=True)
    with noted_signals(signals.put):
        thread.start()
        interrupts = 0
        while (number := next_note(signals)) is not None:
            interrupts += number == signal.SIGINT
            _stop(desk, working, gives_up=interrupts > 1)
    outcome = ended[0]
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def _stop(desk: CommandContext, working: Worker, *, gives_up: bool) -> None:
    """Let a worker end what is under way, or give it up."""
    if gives_up:
        desk.out.remark("Giving up what is under way.")
        working.give_up()
        return
    left = counted(len(working.under_way), "effect")
    desk.out.remark(f"Ending: {left} under way. Ctrl-C gives them up." if working.under_way else "Ending.")
    working.stop()


def _printer(desk: CommandContext) -> Callable[[WorkerReport], None]:
    """Return what prints the report of each step, one line at a time."""
    printing = threading.Lock()
    out = desk.out

    def report(one: WorkerReport) -> None:
        claim = one.claim
        with printing:
            if desk.json:
                out.line(one.to_wire())
                return
            words = [one.kind.replace("_", " "), claim.requirement.type, f"of {claim.proposal_id}"]
            if one.kind == "claimed":
                words.append(f"attempt {claim.attempt}")
            else:
                words.append(f"{one.seconds:.2f} s")
            if one.code is not None:
                words.append(f"{one.code}: {one.message}")
            out.text(" ".join(words))
            sys.stdout.flush()

    return report


def _tell(desk: CommandContext, working: Worker, summary: WorkerSummary) -> int:
    """Say what was done and what is left; return the exit code."""
    wire = {
        "worker": working.name,
        "completed": summary.completed,
        "failed": summary.failed,
        "lost": summary.lost,
        "givenUp": [one.claim_id for one in summary.given_up],
    }
    if desk.json:
        desk.out.line({"what": "ended", **wire})
    words = f"{counted(summary.completed, 'effect')} completed, {summary.failed} failed, {summary.lost} lost."
    for one in summary.given_up:
        then = "offered again" if one.idempotent else "in doubt"
        words += f" {one.requirement.type} of {one.proposal_id} was given up; its claim lapses, then it is {then}."
    desk.out.remark(words)
    return 1 if summary.failed or summary.lost or summary.given_up else 0
