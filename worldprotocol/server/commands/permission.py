"""What a caller may have executed: the words of its command, checked by the table and narrowed to what it may read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import click

from authority import is_policy_file
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.access import right_fault
from worldprotocol.operations.visibility import unknown_proposal
from worldprotocol.server.commands.command_table import RemoteCommand
from worldprotocol.server.commands.command_words import CommandWords, local_reason, read_words

if TYPE_CHECKING:
    from world.state.proposal import Proposal
    from worldprotocol.server.call import Call

__all__ = ["PermittedCommand", "permit"]

MAX_LOOKED_AT: Final = 50
"""Proposals that are looked at where the beginning of an id names several."""

_PLACE: Final = re.compile(r"[:/\\\\]")
"""Characters of files and references, which no name of a policy over a server has."""


@dataclass(frozen=True, slots=True)
class PermittedCommand:
    """A command that the caller may have executed.

    Args:
        row: of the table.
        words: the words to execute.
        may_see: whether the caller may read a proposal.
        may_list: whether an ambiguous name may be answered with what it could mean.
    """

    row: RemoteCommand
    words: Sequence[str]
    may_see: Callable[[Proposal], bool]
    may_list: bool


def permit(call: Call, arguments: Sequence[str]) -> PermittedCommand:
    """Return the command of a request; reads the index where names are narrowed.

    Args:
        call: the request.
        arguments: the words after ``worldctl``.

    Raises:
        RefusedError: ``NOT_OVER_SERVER`` for a command or an option that the table does not permit; ``RIGHT_MISSING``,
            ``NOT_THE_VERIFIED_ACTOR``, ``UNKNOWN_PROPOSAL``, ``INVALID_VALUE``.
    """
    said = SimpleNamespace(json=False, quiet=False)
    words = _read(arguments, said)
    row = words.row
    if row is None:
        path = words.path or "worldctl"
        raise RefusedError(
            ErrorCode.NOT_OVER_SERVER,
            f"`{path}` {local_reason(path)}, so a server does not execute it; run it without --server, or with --local "
            "on the machine that has the realm.",
        )
    fault = right_fault(call.view, call.verified, row.rights, call.service.clock.now_ms())
    if fault is not None:
        raise RefusedError(fault.code, fault.message)
    reads_all = call.visibility.reads_all and not call.visibility.rules
    if row.is_whole:
        call.visibility.check_whole()
    options = {name: list(given) for name, given in words.options.items()}
    _check_read_options(call, row, options, reads_all=reads_all)
    _name_caller(call, row, options)
    if "--follow" in options:
        call.visibility.check_whole()  # what a new event reveals of hidden ones is not known yet
    if row.redacts:
        options["--redact"] = [*options.get("--redact", ()), *call.visibility.rules]
    _check_values(call, words)
    is_narrowed = row.is_own and not (reads_all or (row.redacts and call.visibility.reads_all))
    given = list(words.arguments)
    if is_narrowed:
        _check_own_right(call)
        if row.path == "inbox":
            _only(call, options, "--for")
        elif given:
            given[0] = _visible(call, given[0])
    may_see = call.visibility.is_own if is_narrowed else call.visibility.may_see
    written = CommandWords(row.path, row, options, given).written(json=said.json, quiet=said.quiet)
    return PermittedCommand(row, [*row.path.split(), *row.fixed, *written[len(row.path.split()) :]], may_see, reads_all)


def _read(arguments: Sequence[str], said: Any) -> CommandWords:
    """Return the words of a command.

    Raises:
        RefusedError: ``NOT_OVER_SERVER`` for an option that the table does not permit.
    """

    def note(_: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            setattr(said, parameter.name or "", True)

    settings: dict[str, Any] = {"is_flag": True, "callback": note, "expose_value": False}
    shared = [click.Option(["--json"], **settings), click.Option(["--quiet", "-q"], **settings)]
    try:
        return read_words(arguments, shared)
    except click.UsageError as error:
        raise RefusedError(
            ErrorCode.NOT_OVER_SERVER,
            f"{error.format_message()} A server executes only the options that the table of its commands lists "
            "(docs/server.md, The command line).",
        ) from None


def _check_read_options(
    call: Call, row: RemoteCommand, options: Mapping[str, Sequence[str]], *, reads_all: bool
) -> None:
    """Refuse options that are resolved by reading the realm to callers that may not read it."""
    if reads_all or (row.redacts and call.visibility.reads_all):
        return
    for one in row.options:
        if one.form == "read" and one.name in options:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                f"{one.name} reads the realm; it needs the right reader without redaction, or auditor.",
            )


def _name_caller(call: Call, row: RemoteCommand, options: dict[str, list[str]]) -> None:
    """Name the verified caller wherever a command names who acts."""
    for one in row.options:
        if one.form == "caller" and not (one.name == "--agent" and "--manifest" in options):
            _only(call, options, one.name)


def _only(call: Call, options: dict[str, list[str]], name: str) -> None:
    """Set an option to the verified actor.

    Raises:
        RefusedError: ``NOT_THE_VERIFIED_ACTOR`` where it names another one.
    """
    other = next((one for one in options.get(name, ()) if one != call.actor_id), None)
    if other is not None:
        raise RefusedError(
            ErrorCode.NOT_THE_VERIFIED_ACTOR,
            f"{name} names {other[:80]!r}, and the caller was verified as {call.actor_id!r}; leave {name} out, or "
            f"sign in as {other[:80]!r}.",
        )
    options[name] = [call.actor_id]


def _check_values(call: Call, words: CommandWords) -> None:
    """Refuse values that would make the server load a file, or wait for long.

    Raises:
        RefusedError: ``NOT_OVER_SERVER``.
    """
    for name in words.values("policy"):
        if _PLACE.search(name) or is_policy_file(name.partition("@")[0]) or is_policy_file(name):
            raise RefusedError(
                ErrorCode.NOT_OVER_SERVER,
                f"{name[:80]!r} is a file or a reference of the server; over a server, name policies by their name.",
            )
    for text in words.values("seconds"):
        try:
            seconds = float(text)
        except ValueError:
            continue  # the command refuses it
        most = call.service.config.max_wait_s
        if not seconds <= most:  # nor NaN
            raise RefusedError(
                ErrorCode.NOT_OVER_SERVER,
                f"--wait {text[:40]} is longer than this server waits, {most} s (max_wait_s); wait for less, and look "
                "again with `worldctl show`.",
            )


def _check_own_right(call: Call) -> None:
    """Refuse a reader with redaction what only actors and approvers read in part."""
    if not {"actor", "approver"} & set(call.visibility.rights):
        call.visibility.check_whole()


def _visible(call: Call, given: str) -> str:
    """Return the id of the one proposal that a text names and the caller may read.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``.
    """
    realm, found = call.hosted.realm, set[str]()
    values = {"low": given, "high": given + "\U0010ffff", "most": MAX_LOOKED_AT}
    for statement in ("proposal_prefix", "intent_prefix") if given else ():
        names = [str(row[0]) for row in realm.archive.rows(statement, values)]
        found |= {name for name in names if call.visibility.is_own(realm.proposal(name))}
    exact = {given} & found or found
    if len(exact) != 1:
        raise unknown_proposal(given[:200])
    return exact.pop()
