"""``worldctl whatif``: what would have become of the worlds, had something been otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.output import counted
from worldprotocol.cli.support.point_in_time import AT_METAVAR

if TYPE_CHECKING:
    from worldprotocol.analysis.counterfactual import Insertion


@command("whatif")
@click.option("--from", "begin", metavar=AT_METAVAR, help="The world or the point after which things go otherwise.")
@click.option("--drop", multiple=True, metavar="PROPOSAL", help="A proposal that is not submitted; repeat for more.")
@click.option("--policy", "policies", multiple=True, metavar="POLICY", help="A policy that judges from there on.")
@click.option("--insert", "files", multiple=True, metavar="FILE|-", help="JSON lines of intents to add.")
@click.option("--domain", "domains", multiple=True, metavar="DOMAIN", help="Another domain that was in force then.")
@click.option("-o", "--output", "scratch", metavar="FILE", help="Keep the branch as a log of its own.")
def whatif(
    desk: CommandContext,
    begin: str | None,
    drop: tuple[str, ...],
    policies: tuple[str, ...],
    files: tuple[str, ...],
    domains: tuple[str, ...],
    scratch: str | None,
) -> int:
    """Replay the log from a world on with one change, in a scratch log, and report the differences.

    Later intents of all branches are submitted again in order, at their recorded times, with the recorded results of
    projections, with the answers of people where they are asked the same, and with the recorded results of effects
    where the same effect is asked for with the same arguments. No effect is made: an execution that would need one is
    cancelled there and reported as such. Nothing is written to the real log.

    A POLICY is the name of a loaded policy, a file or a reference. One whose name is in force takes the place of that
    policy; any other takes the place of all that actors are bound to, so there can be one such. A line of FILE is
    {"actor", "type", "input"?, "scopeProposal"?, "branch"?, "at"?}; without a time ("at", as for --since) it comes
    first. --drop without --from begins before the first of them. Domains that were adopted later are adopted again:
    those that are portable data are in the log, others are named with --domain, a reference like that in world.toml.

    Exit code 1 when anything comes to something else. With --json a line each, and a summary last. FILE of -o is there
    when all is done, and not before.
    """
    from worldprotocol.analysis.counterfactual import WhatIf, start_of, what_if
    from worldprotocol.cli.support.opening import composed
    from worldprotocol.policy_tools.hypothetical import policy_named

    config = composed(desk)
    insert = [one for file in files for one in _insertions(file)]
    with desk.look() as looked:
        start, dropped = start_of(looked, begin, drop)
    question = WhatIf(
        address=desk.address(),
        domain=str(config.domain),
        start=start,
        domains=domains,
        drop=dropped,
        policies=[policy_named(given, tuple(map(str, config.policies)), config.folder) for given in policies],
        insert=insert,
        at_hand=tuple(map(str, config.policies)),
        folder=config.folder,
        limits=config.chosen_limits(),
        scratch=None if scratch is None else Path(scratch),
    )
    with desk.progress("Going through it again") as progress:
        report = what_if(question, progress)
    for line in report.lines():
        if desk.json:
            desk.out.line(line)
        else:
            for words in _words(line):
                desk.out.text(words)
    return 1 if report.changed else 0


def _insertions(file: str) -> Iterator[Insertion]:
    """Yield the intents of a file.

    Raises:
        RefusedError: ``FILE_UNREADABLE``, ``MALFORMED_JSON``, ``INVALID_VALUE`` with the line.
    """
    from world.clock import SystemClock
    from world.errors import RefusedError
    from world.model.canonical_json import read_json
    from worldprotocol.analysis.counterfactual import Insertion
    from worldprotocol.cli.commands.look.log import moment_given
    from worldprotocol.cli.support.input_reading import read_lines

    for number, line in read_lines(file):
        if isinstance(line, RefusedError):
            raise line
        rendered = read_json(line)
        if not isinstance(rendered, dict) or not isinstance(rendered.get("actor"), str) or "type" not in rendered:
            form = '{"actor", "type", "input"?}'
            raise RefusedError(
                ErrorCode.INVALID_VALUE, f"{file}, line {number}: it has not the form {form}.", line=number
            )
        at = rendered.get("at")
        moment = None if at is None else moment_given(str(at), SystemClock().now_ms())
        body = {name: value for name, value in rendered.items() if name not in ("actor", "branch", "at")}
        yield Insertion(rendered["actor"], body, rendered.get("branch"), moment)


_ONE_LINE: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "inserted": lambda line: f"+\tinserted\t{line['proposalId']}\t{_ended(line['to'])}",
    "effectNeeded": lambda line: f"!\teffect needed\t{line['proposalId']}\t{line['effect']} {_json(line['args'])}",
    "question": lambda line: f"?\tpeople would be asked\t{line['proposalId']}\t{line['message']}",
    "unasked": lambda line: f"-\tanswer left out\t{line['proposalId']}",
    "elsewhere": lambda line: f"~\t{line['branch']} begins elsewhere\t{line['from'][:12]} -> {line['to'][:12]}",
    "notAdopted": lambda line: f"!\tdomain not adopted\tevent {line['position']}\t{line['code']}: {line['message']}",
}
"""What is said of a line of the report, by its kind."""


def _words(line: Mapping[str, Any]) -> Iterator[str]:
    kind = line["kind"]
    if kind in _ONE_LINE:
        yield _ONE_LINE[kind](line)
    elif kind == "proposal":
        flip = ", flips" if line["flip"] else ""
        begin = f"{line['position']}\t{line['change']}{flip}\t{line['proposalId']}\t{line['action']} by {line['actor']}"
        yield f"{begin}\t{_ended(line['from'])} -> {_ended(line['to'])}"
    elif kind == "head":
        yield f"=\thead of {line['branch']}\t{line['change']}"
        for one in line.get("changes", ()):
            before, after = (_json(one[side]) if side in one else "absent" for side in ("before", "after"))
            yield f"  {one['path']}: {before} -> {after}"
        if line.get("moreChanges"):
            yield f"  and {counted(line['moreChanges'], 'place')} more"
    else:
        yield from _summary(line)


def _summary(line: Mapping[str, Any]) -> Iterator[str]:
    for what, count in line["notRepeated"].items():
        yield f"not done again: {what} ({count})"
    if line["codeChanged"]:
        yield f"not the code of then: {', '.join(line['codeChanged'])}"
    if line["stopped"] is not None:
        yield line["stopped"]
    worlds = ", ".join(f"{count} {name}" for name, count in line["worlds"].items())
    effects = f"{counted(line['effectsNeeded'], 'effect')} needed"
    yield (
        f"from event {line['start']} on: worlds {worlds}; {counted(line['proposals'], 'proposal')} otherwise, "
        f"{line['impossible']} impossible; {counted(line['flips'], 'flip')}; {effects}"
    )


def _ended(rendered: Mapping[str, Any]) -> str:
    """Return how a proposal ended, and with what."""
    world = rendered.get("contentId")
    code = f" {rendered['code']}" if rendered.get("code") else ""
    if rendered["status"] == "completed":
        return f"completed ({str(world)[:12]})"
    message = f": {rendered['message']}" if rendered.get("message") else ""
    return f"{rendered['status']}{code}{message}"


def _json(value: Any) -> str:
    from world.model.canonical_json import canonical_text

    text = canonical_text(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
