"""The commands of ``python -m conformance``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import click

from conformance.klis_scenario import LedgerScenario, read_cases
from conformance.klis_sessions import Totals, read_sessions, run_sessions
from conformance.lines import answer_lines
from conformance.timeline import draw
from conformance.vectors import (
    IDENTITIES,
    check_surroundings,
    evaluation_of,
    flow_of,
    read_case,
    read_expression_case,
    unmarked,
)
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.private_files import open_private
from worldprotocol.cli.support.command_context import CommandContext, global_options, with_desk
from worldprotocol.cli.support.input_reading import STDIN, read_lines, read_object
from worldprotocol.duration_text import duration

__all__ = ["root"]

HELP: Final = """Compute what other implementations of the specifications compare with.

Only the named file or stdin is read: a case carries its own data. Exit codes: 0 clean, 1 findings, 2 usage."""

ID_HELP: Final = """Read JSON lines and print one JSON result a line.

\b
intent-key  {schemaHash, body}                 ->  {intentKey}
catalog     {schemaHash, actions, pruning?}    ->  {catalogHash}
snapshot    {schemaHash, snapshot}             ->  {snapshotHash, contentId}
world       {schemaHash, snapshotHash or snapshot, parentWorldId}
                                               ->  {worldId, contentId, snapshotHash}

A number that JSON cannot carry is written {"$vec": "-0"}, {"$vec": "NaN"} and so on. A line that cannot be answered
gives {"error"} in its place, and exit code 1 at the end."""

_OPTIONS: Final = ("json", "quiet")


def _options() -> list[click.Parameter]:
    return [option for option in global_options() if option.name in _OPTIONS]


class _Command(click.Command):
    """A command that takes ``--json`` and ``--quiet`` after its name, too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _options()


root = click.Group("python -m conformance", help=HELP, params=_options(), context_settings={"max_content_width": 110})
"""All commands; ``worldprotocol.cli.program.run`` runs one."""

_SOURCE: Final = click.argument("source", metavar="[FILE|-]", default=STDIN)


@root.command("id", cls=_Command, help=ID_HELP, short_help="Compute keys, hashes or ids.")
@click.argument("kind", type=click.Choice(list(IDENTITIES)))
@_SOURCE
@with_desk
def identity(desk: CommandContext, kind: str, source: str) -> int:
    """Compute keys, hashes or ids from JSON lines."""
    return answer_lines(desk, source, read_case, IDENTITIES[kind])


@root.command("eval", cls=_Command, short_help="Evaluate expressions.")
@_SOURCE
@click.option("--context", metavar="FILE", help="A JSON object with the members that lines leave out.")
@with_desk
def evaluate(desk: CommandContext, source: str, context: str | None) -> int:
    r"""Read JSON lines {expr, data?, computed?, input?, phase?, ...} and print {ok, value} or {ok, code, message}.

    Members that neither the line nor --context gives are empty, so a path into them is null.

    \b
    $ echo '{"expr": {"kind": "get", "path": "n"}, "data": {"n": 2}}' | python -m conformance eval
    {"ok":true,"value":2}
    $ echo '{"expr": {"kind": "get", "path": "n"}}' | python -m conformance eval
    {"ok":true,"value":null}

    Beside data, computed and input a line may say system, meta, intentId, currentAction, now (ms) and randomSeed;
    phase is "computed" for the expression of a computed value.
    """
    given = {} if context is None else _context(context)
    return answer_lines(desk, source, read_expression_case, lambda case: evaluation_of(case, given))


def _context(path: str) -> dict[str, Any]:
    """Return the members that hold where a line says nothing."""
    context = unmarked(read_object(f"@{path}", what="--context"))
    assert isinstance(context, dict)
    try:
        check_surroundings(context)
    except RefusedError as refused:
        raise RefusedError(refused.code, f"--context: {refused.message}", **refused.details) from None
    return context


@root.command("flow", cls=_Command, short_help="Compute, apply, validate and run flows.")
@_SOURCE
@with_desk
def flow(desk: CommandContext, source: str) -> int:
    """Read JSON lines {op, schema, ...} and print the result of each.

    op is compute, apply, validate, schemaHash or host; compute and apply take time and random seed from the line's
    context. The patches of a flow that did not run are null: its action is unknown or not available, or its input does
    not fit. One that ran and failed has [].
    """
    return answer_lines(desk, source, read_case, flow_of)


@root.command("mel", cls=_Command, short_help="Compile MEL.")
@_SOURCE
@with_desk
def mel(desk: CommandContext, source: str) -> int:
    r"""Read JSON lines {source} and print {ok, schema, errors, warnings} of each.

    The schema is the portable one with its hash, null where there are errors; an error has code, message and line.

    \b
    $ echo '{"source": "domain D { state { n: nubmer = 0 } }"}' | python -m conformance mel
    {"ok":false,"schema":null,"errors":[{"code":"E_UNDEFINED",...,"line":1}],"warnings":[]}
    """
    from conformance.mel import mel_of

    return answer_lines(desk, source, read_case, mel_of)


@root.command("klis-run", cls=_Command, short_help="Run scenarios on an empty lease ledger.")
@_SOURCE
@with_desk
def klis_run(desk: CommandContext, source: str) -> int:
    r"""Run a scenario on an empty ledger and print the result of each operation, a JSON line each.

    FILE is one case, {"ops": [...]}; a list of cases; {"cases": [...]}; or JSON lines of cases. One case gives bare
    results; several give {"case", "op", "result"}, where case is its id and op counts from 0. Times are each
    operation's own t, in ms.

    \b
    register      agent, priority                            "OK"
    acquire       agent, session, predicate, resource, ttl?, as?
                                                             "GRANTED", "WAIT", "DIE" or "REJECT"
    declare       agent, session, intents                    {verdict, conflicts} or {reject}
    heartbeat     lease, ttl?                                true where it is in force
    release       lease                                      true where it was in force
    revoke        lease, reason                              true where it was in force
    evict                                                    leases expired since the last evict
    active                                                   ["agent/session PREDICATE resource"]
    distinct_ids  leases                                     whether all are leases, and different
    compat        held, requested                            whether both may be held
    canonicalize  resource                                   its canonical form or {error}
    validate      manifest, channel?                         "ACCEPT", {accept: {effective}} or {reject}
    register_key  agent, key                                 "OK"
    observe       agent, session, call, declared?, mode?, cwd?, exists?
                                                             {observed, decision, session, error?}
    backup_exists lease, dir                                 whether it was backed up before its lease

    An operation that makes no sense gives {"error", "message"}, and exit code 1 at the end.
    """
    cases, alone = read_cases(_content(source))
    wrong = False
    for case in cases:
        for number, result in enumerate(LedgerScenario().run(case.ops)):
            wrong = wrong or (isinstance(result, dict) and "message" in result)
            desk.out.line(result if alone else {"case": case.name, "op": number, "result": result})
    return 1 if wrong else 0


@root.command("klis-sessions", cls=_Command, short_help="Run sessions of leases in virtual time.")
@_SOURCE
@click.option("--svg", metavar="FILE", help="Draw which sessions held leases, and which waited for which and for what.")
@click.option("--rows", type=click.IntRange(min=1), default=40, show_default=True, help="Sessions drawn at most.")
@click.option("--from", "start", type=click.IntRange(min=0), metavar="MS", help="Draw from this time on.")
@click.option("--to", "end", type=click.IntRange(min=0), metavar="MS", help="Draw up to this time.")
@with_desk
def klis_sessions(
    desk: CommandContext, source: str, svg: str | None, rows: int, start: int | None, end: int | None
) -> None:
    """Run concurrent sessions in virtual time and print the totals.

    Each line is {session, agent, start_ms, end_ms, scope}. At start_ms the session requests the leases of its scope;
    once granted it holds them for end_ms - start_ms. One that waits stays in the queue, one that dies requests again
    when its verdict says. At equal times releases come first, then waiting requests, oldest first, then requests by
    session id. An agent's priority is the time of its first request.
    """
    if start is not None and end is not None and end <= start:
        raise click.UsageError("--to must be later than --from.")
    plans = read_sessions(read_lines(source))
    with desk.progress("Running the sessions") as progress:
        totals, courses = run_sessions(plans, progress=progress)
    if svg is not None:
        name = "sessions" if source == STDIN else Path(source).name
        with open_private(svg) as file:
            file.write(draw(courses, title=f"Leases of {name}", rows=rows, start=start, end=end).encode())
    if desk.json:
        desk.out.document(totals.to_wire())
    else:
        desk.out.table(("total", "value"), _rows(totals))


def _rows(totals: Totals) -> list[tuple[str, str]]:
    rendered = totals.to_wire()
    verdicts = rendered.pop("verdicts")
    rows = [(name.replace("_", " "), f"{value}") for name, value in rendered.items() if not name.endswith("_ms")]
    times = {name: rendered[f"{name}_ms"] for name in ("total_wait", "max_wait")}
    rows += [(name.replace("_", " "), f"{ms} ms ({duration(ms)})") for name, ms in times.items()]
    return rows + [(f"verdicts {status}", f"{count}") for status, count in verdicts.items()]


def _content(source: str) -> bytes:
    if source == STDIN:
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise RefusedError(
            ErrorCode.FILE_UNREADABLE, f"{source} cannot be read: {error.strerror or error}.", path=source
        ) from None
