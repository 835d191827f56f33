"""Governed runs for ``worldctl show``: the verification log for people, within 100 columns."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from world.errors import RefusedError
from worldprotocol.terminal_text import visible

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm

WIDTH: Final = 100
SHOWN: Final = 40
"""Lines of one kind that are shown; --json has all."""

INDENT: Final = 13


def verification_of(world: Realm, run_id: str, upto: int | None) -> dict[str, Any] | None:
    """Return the verification log of a run, or of a proposal's effects; None where nothing was recorded, or not yet."""
    from worldprotocol.runs.verification import read_verification

    try:
        return read_verification(world.archive, run_id, upto).to_wire()
    except RefusedError as refused:
        if refused.code != "UNKNOWN_RUN":
            raise
        return None


def show_run(world: Realm, run_id: str, upto: int | None) -> tuple[dict[str, Any], list[str]]:
    """Return a run as JSON and as lines; as it stood after an event, where one is given.

    Raises:
        RefusedError: ``UNKNOWN_RUN``.
    """
    from worldprotocol.runs.verification import read_verification

    wire = read_verification(world.archive, run_id, upto).to_wire()
    return {"kind": "run", "runId": run_id, "verification": wire}, list(_run_lines(wire))


def show_session(world: Realm, session_id: str, upto: int | None) -> tuple[dict[str, Any], list[str]]:
    """Return all runs of a session, oldest first, as JSON and as lines; after an event, where one is given."""
    from worldprotocol.runs.verification import read_verification, runs_of

    names = runs_of(world.archive, session_id, upto)
    found = [read_verification(world.archive, run_id, upto).to_wire() for run_id in names]
    lines = [f"session {session_id}: {len(found)} {'run' if len(found) == 1 else 'runs'}"]
    for wire in found:
        lines += ["", *_run_lines(wire)]
    return {"kind": "session", "sessionId": session_id, "runs": found}, lines


def effect_lines(wire: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was seen of a proposal's effects."""
    yield from _listed("observed", [_observation(one) for one in wire["observed"]])
    yield from _violations(wire["violations"])
    yield from _rollbacks(wire["rollbacks"])


def _run_lines(wire: Mapping[str, Any]) -> Iterator[str]:
    from worldprotocol.api.proposal_summary import moment

    yield f"run {wire['runId']}: {wire['outcome']}"
    if "agentId" in wire:
        yield from _field("who", f"{wire['agentId']}, session {wire['sessionId']}")
        yield from _field("what", shlex.join(wire["command"]) or wire["kind"])
        ended = f" to {moment(wire['closedAt'])}" if "closedAt" in wire else ", not ended yet"
        yield from _field("when", moment(wire["openedAt"]) + ended)
        held_by = ", ".join(wire["heldBy"]) or "nothing"
        yield from _field("mode", f"{wire['mode']}, held by {held_by}")
        yield from _field("leases", f"{len(wire['leaseIds'])} by verdict {wire['verdictId']}")
    if "exitCode" in wire:
        yield from _field("exit code", str(wire["exitCode"]))
    if wire.get("reason"):
        yield from _field("reason", wire["reason"])
    yield from _listed("declared", [_triple(one) for one in wire.get("declared", ())])
    yield from _listed("observed", [_observation(one) for one in wire["observed"]])
    yield from _violations(wire["violations"])
    widened = [f"{_triple(one)}  by verdict {one['verdictId']}" for one in wire["amendments"]]
    yield from _listed("widened by", widened)
    yield from _rollbacks(wire["rollbacks"])
    yield from _listed("not used", [_triple(one) for one in wire.get("unused", ())])
    if wire.get("moreUnused"):
        yield from _field("", f"and {wire['moreUnused']} more, which are not listed")
    yield from _listed("changes", [f"{one['kind']:<9}{one['resource']}" for one in wire.get("changes", ())])
    yield from _listed("of others", [f"{one['kind']:<9}{one['resource']}" for one in wire.get("foreign", ())])


def _triple(one: Mapping[str, Any]) -> str:
    target = f" to {one['to']}" if one.get("to") else ""
    return f"{one['predicate']:<10} {one['resource']}{target}"


def _observation(one: Mapping[str, Any]) -> str:
    times = "once" if one["count"] == 1 else f"{one['count']} times"
    return f"{_triple(one)}  ({one['depth']}, {times})"


def _violations(violations: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in violations[:SHOWN]:
        how = "blocked" if one.get("blocked") else "found afterwards"
        yield from _field("VIOLATION", f"{_triple(one)}  ({one['depth']}, {how})")
        yield from _field("", one["message"])
        if one.get("call"):
            yield from _field("", f"call: {one['call']}")
    yield from _more(len(violations))


def _rollbacks(rollbacks: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for one in rollbacks:
        rendered = [(word, name) for word in ("restored", "removed", "failed") for name in one[word]]
        yield from _field("given back", f"backup {one['verdictId']}" + ("" if rendered else ": all was as saved"))
        for word, name in rendered[:SHOWN]:
            yield from _field("", f"{word:<9}{name}")
        yield from _more(len(rendered))


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    for at, line in enumerate(lines[:SHOWN]):
        yield from _field(title if at == 0 else "", line)
    yield from _more(len(lines))


def _more(count: int) -> Iterator[str]:
    if count > SHOWN:
        yield from _field("", f"and {count - SHOWN} more; --json has all")


def _field(title: str, text: str) -> Iterator[str]:
    """Yield a title and its text, wrapped; what controls a terminal is shown and not done."""
    safe = visible(text)
    head = f"  {title}".ljust(INDENT)
    inner = WIDTH - INDENT
    lines = textwrap.wrap(safe, inner, break_on_hyphens=False, drop_whitespace=True) if len(safe) > inner else [safe]
    for at, line in enumerate(lines):
        yield ((head if at == 0 else " " * INDENT) + line).rstrip()
