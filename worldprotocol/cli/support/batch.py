"""Many submissions from JSON lines: one result a line, bad lines reported, interruptible between two lines."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError, StorageFullError
from world.model.canonical_json import read_json
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.command_context import CommandContext
from worldprotocol.cli.support.input_reading import count_lines, read_lines
from worldprotocol.cli.support.rendering.proposals import FINDINGS, exit_code_of, received_as, result_of

if TYPE_CHECKING:
    from worldprotocol.cli.support.output import Printer

DUPLICATE: Final = "INTENT_ALREADY_SUBMITTED"
"""Code of what an earlier run has submitted."""

UNDER_WAY: Final = frozenset({"submitted", "evaluating", "approved", "executing"})
"""Statuses of proposals that have not ended."""

Take = Callable[[Realm, Mapping[str, Any]], dict[str, Any]]


class Interruption:
    """Ctrl-C during a batch: the line under way is finished first, waiting for a line is broken off at once."""

    def __init__(self) -> None:
        """Begin with nothing under way."""
        self.asked = False
        self._busy = False

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Take SIGINT over for a while; a command of a request, in a thread of a server, gets none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGINT, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Hold back Ctrl-C until the line under way is done; a second one breaks it off."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.asked or not self._busy:
            raise KeyboardInterrupt
        self.asked = True


def run_batch(desk: CommandContext, source: str, take: Take, *, wait: float, stop_on_error: bool) -> int:
    """Submit the lines of a file or of stdin; see ``worldctl submit`` and ``worldctl project``.

    Args:
        desk: the realm, and where to print.
        source: a file, or ``-``.
        take: submits one line; see ``intent_taker`` and ``event_taker``.
        wait: seconds to wait at most for what has not ended.
        stop_on_error: stop at the first line that is refused, rejected or failed.

    Raises:
        KeyboardInterrupt: saying how many lines were done.
        StorageFullError: after which no line could be better.
    """
    done: Counter[str] = Counter()
    interruption = Interruption()
    total = count_lines(source)
    try:
        with desk.open() as world, interruption.heard(), desk.progress("Submitting") as progress:
            printer = _Lines(desk.out, world, done, waits=wait > 0)
            try:
                for number, line in read_lines(source):
                    with interruption.busy():
                        result = _result(world, take, line)
                        printer.take(number, result)
                        progress(done.total(), max(total, done.total()))
                    if interruption.asked:
                        raise KeyboardInterrupt
                    if stop_on_error and result["status"] in FINDINGS:
                        desk.out.remark(f"Stopped at line {number}.")
                        break
                printer.stay(wait)
            finally:
                printer.tell_the_rest()
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"Interrupted: {_counted(done)}; all of them are in the log.") from None
    except DamagedLogError:
        desk.out.remark(f"{_counted(done)}; all of them are in the log.")
        raise
    except StorageFullError:
        desk.out.remark(
            f"{_counted(done)}; all of them are in the log. The line after them may be there in part, with its "
            "effects: free some space, and look at `worldctl settle`, `stuck` and `log` before you submit it again."
        )
        raise
    desk.out.remark(f"{_counted(done)}.")
    return printer.exit_code()


class _Lines:
    """Prints the results; with --wait, those of proposals that have not ended come last."""

    def __init__(self, out: Printer, world: Realm, done: Counter[str], *, waits: bool) -> None:
        self._out = out
        self._world = world
        self._done = done
        self._waits = waits
        self._open: dict[str, tuple[int, dict[str, Any]]] = {}
        self._ended: dict[tuple[str, bool], dict[str, Any]] = {}  # one result of each kind, for the exit code

    def take(self, number: int, result: dict[str, Any]) -> None:
        """Print a result, or keep its line for later."""
        self._done[result["status"]] += 1
        if self._waits and result["status"] in UNDER_WAY:
            self._open[result["proposalId"]] = number, result
        else:
            self._tell(number, result)

    def exit_code(self) -> int:
        """Return the exit code of all lines that were printed."""
        return exit_code_of(self._ended.values())

    def stay(self, seconds: float) -> None:
        """Wait until everything has ended, or the time is over, and read the state then."""
        if self._open:
            from worldprotocol.cli.support.submission import stay

            stay(self._world, self._open, seconds)

    def tell_the_rest(self) -> None:
        """Print the lines that were kept, with the present state."""
        for name, (number, before) in self._open.items():
            kept = {key: before[key] for key in ("projection", "why") if key in before}
            now = result_of(self._world, self._world.proposal(name)) | kept
            self._done[before["status"]] -= 1
            self._done[now["status"]] += 1
            self._tell(number, now)
        self._open.clear()

    def _tell(self, number: int, result: dict[str, Any]) -> None:
        self._ended.setdefault((result["status"], "held" in result), result)
        self._out.line({"line": number, **result})


def _result(world: Realm, take: Take, line: bytes | RefusedError) -> dict[str, Any]:
    try:
        if isinstance(line, RefusedError):
            raise line
        wire = read_json(line)
        if not isinstance(wire, dict):
            raise RefusedError(ErrorCode.INVALID_VALUE, "The line must be a JSON object.")
        return take(world, wire)
    except StorageFullError:
        raise
    except RefusedError as refused:
        rendered: dict[str, Any] = {"status": "refused", "error": refused.to_dict()}
        if refused.code == DUPLICATE:
            rendered |= {"alreadySubmitted": True, "proposalId": refused.details.get("proposal_id")}
        return rendered


def intent_taker(rendered: Mapping[str, Any]) -> Take:
    """Return what submits a line of ``worldctl submit --intents``, with the options ``branch`` and ``actor``."""

    def take(world: Realm, wire: Mapping[str, Any]) -> dict[str, Any]:
        if "body" in wire or "intentId" in wire:
            issued = {name: value for name, value in wire.items() if name != "signature"}
            signature = wire.get("signature")
            return result_of(world, world.submit(issued, signature=signature, branch=rendered["branch"]))
        _only(wire, "actor", "type", "input", "scopeProposal", "note")
        actor = _actor(wire, rendered)
        action, scope = _needed(wire, "type"), wire.get("scopeProposal")
        intent = world.issue(actor, action, wire.get("input"), scope=scope, note=wire.get("note"))
        return result_of(world, world.submit(intent, branch=rendered["branch"]))

    return take


def event_taker(rendered: Mapping[str, Any]) -> Take:
    """Return what projects a line of ``worldctl project --events``, with the options ``branch`` and ``actor``."""

    def take(world: Realm, wire: Mapping[str, Any]) -> dict[str, Any]:
        _only(wire, "actor", "source")
        came = world.project(_needed(wire, "source"), _actor(wire, rendered), branch=rendered["branch"])
        return received_as(world, came)

    return take


def _only(wire: Mapping[str, Any], *known: str) -> None:
    unknown = sorted(wire.keys() - set(known))
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"The line has {', '.join(map(repr, unknown))}; it may have {', '.join(known)}.",
            unknown=unknown,
            known=list(known),
        )


def _needed(wire: Mapping[str, Any], name: str) -> Any:
    if wire.get(name) is None:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"The line lacks {name!r}.", path=f"$.{name}")
    return wire[name]


def _actor(wire: Mapping[str, Any], rendered: Mapping[str, Any]) -> str:
    actor = wire.get("actor", rendered["actor"])
    if not isinstance(actor, str) or not actor:
        raise RefusedError(ErrorCode.INVALID_VALUE, 'The line names no actor: give "actor", or --actor for all lines.')
    return actor


def _counted(done: Counter[str]) -> str:
    lines = f"{done.total()} line{'s' if done.total() != 1 else ''} done"
    return f"{lines} ({', '.join(f'{count} {status}' for status, count in sorted((+done).items()))})" if done else lines
