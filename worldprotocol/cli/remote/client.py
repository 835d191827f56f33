"""The client: sends a command with the files that it names, and prints what the server sends.

A request whose answer is cut is sent again with the same key: lines that were printed are not printed again.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from worldprotocol.api.remote.addresses import read_server_address
from worldprotocol.client.connection import CommandConnection, RemoteError

if TYPE_CHECKING:
    from world.errors import WorldProtocolError
    from worldprotocol.cli.remote.target import Target
    from worldprotocol.cli.support.command_context import CommandContext
    from worldprotocol.server.commands.command_words import CommandWords

__all__ = ["realm_of_file", "run"]

REPEATED_FOR_S: Final = 30.0
"""Time in which a request is sent again whose answer was cut, or that the server wants later, in seconds."""

PAUSE_S: Final = 0.2
STDIN: Final = "-"
CLEAN: Final = 0
INTERRUPTED: Final = 130
NOBODY_READS: Final = 141
SHOWN_VARIABLES: Final = {"TERM": "term", "COLORTERM": "colorTerm", "NO_COLOR": "noColor"}


class NotServedError(Exception):
    """The socket that was found does not serve this caller, or not this file."""


def run(words: CommandWords, target: Target, desk: CommandContext) -> int | None:
    """Run a command on a server and return its exit code.

    Args:
        words: the command.
        target: the server.
        desk: the global options.

    Returns:
        None where the socket that was found does not serve this caller and this file.
    """
    printed = _Printed(quiet=desk.quiet)
    try:
        return _run(words, target, desk, printed)
    except NotServedError:
        return None
    except RemoteError as error:
        if target.file is not None and error.code == "NOT_OVER_SERVER":
            return None
        return _report(desk, error, is_found=target.file is not None)
    except KeyboardInterrupt:
        if words.path == "log" and "--follow" in words.options:
            return INTERRUPTED  # the way to end it: nothing is wrong
        return _report(desk, RemoteError("INTERRUPTED", "Interrupted; what was done before is in the log."))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS


def _run(words: CommandWords, target: Target, desk: CommandContext, printed: _Printed) -> int:
    """Run a command on a server.

    Raises:
        RemoteError: it was refused, or failed on the way.
    """
    connection = connection_to(target)
    try:
        realm = None if target.file is None else realm_with_file(connection, target)
        realm = realm or target.realm
        body = {
            "arguments": words.written(json=desk.json, quiet=desk.quiet),
            **_inputs(words),
            "terminal": _terminal(),
        }
        key = os.urandom(16).hex()
        end, was_lost = time.monotonic() + REPEATED_FOR_S, False
        while True:
            try:
                realm = realm or only_realm(connection, target.address)
                path = f"/v1/realms/{quote(realm, safe='')}/commands"
                with connection.send("POST", path, body, {"Idempotency-Key": key}) as answer:
                    pieces = _pieces(connection, answer)
                    return printed.take(_held(pieces) if words.row is not None and words.row.is_held else pieces)
            except RemoteError as error:
                was_lost = was_lost or error.is_lost
                printed.begin_again()
                _check_repeatable(error, was_lost=was_lost, end=end)
                time.sleep(error.retry_after_s or PAUSE_S)
    finally:
        connection.close()


def _check_repeatable(error: RemoteError, *, was_lost: bool, end: float) -> None:
    """Raise an error after which the request is not sent again.

    Raises:
        RemoteError: the error.
    """
    wants_more = error.is_lost or error.retry_after_s is not None or (was_lost and error.code == "LOG_UNAVAILABLE")
    if not wants_more or time.monotonic() + (error.retry_after_s or 0) > end:
        raise error


def connection_to(target: Target) -> CommandConnection:
    """Return the connection to a server.

    Raises:
        RemoteError: ``INVALID_ADDRESS``, ``TOKEN_NOT_VALID``.
    """
    from worldprotocol.client.token_file import given_token

    try:
        address = read_server_address(target.address)
        token = given_token(target.token_file) if target.file is None else None
    except _refusals() as refused:
        raise RemoteError(str(refused.code), refused.message, refused.details) from None
    return CommandConnection(address, token)


def _refusals() -> type[WorldProtocolError]:
    """Return the class of refusals, which is imported only once there is an error."""
    from world.errors import WorldProtocolError

    return WorldProtocolError


def _realms(connection: CommandConnection, address: str) -> list[tuple[str, Any]]:
    """Return the realms in which the caller has a right, each with its file where the server says it.

    Raises:
        RemoteError: the request failed.
    """
    with connection.send("GET", "/v1/realms") as answer:
        content = _read(connection, answer)
    try:
        return [(str(one["name"]), one.get("file")) for one in json.loads(content)["realms"]]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise RemoteError(
            "LOG_UNAVAILABLE", f"{address} answered something else, and is no server of realms; check --server."
        ) from None


def only_realm(connection: CommandConnection, address: str) -> str:
    """Return the name of the only realm in which the caller has a right.

    Raises:
        RemoteError: there is none, or there are several.
    """
    names = sorted(name for name, _ in _realms(connection, address))
    if not names:
        raise RemoteError("RIGHT_MISSING", f"You have no right in any realm of {address}; an operator grants rights.")
    if len(names) > 1:
        raise RemoteError("USAGE", f"{address} serves several realms: {', '.join(names)}. Name one with --realm.")
    return names[0]


def realm_with_file(connection: CommandConnection, target: Target) -> str:
    """Return the name of the realm that has a file, on a socket of this user or of the owner of the file.

    Raises:
        NotServedError: the server has no such realm, or has not mapped this user to an actor.
    """
    path, _, name = str(target.file).partition("#")
    try:
        found, at = os.stat(path), os.stat(target.address.removeprefix("unix:"))
        if at.st_uid not in (os.geteuid(), found.st_uid):
            raise NotServedError
        wanted = f"{found.st_dev}:{found.st_ino}#{name or 'main'}"
        return next(realm for realm, file in _realms(connection, "the socket") if file == wanted)
    except (OSError, StopIteration, RemoteError):
        raise NotServedError from None


def realm_of_file(target: Target) -> str | None:
    """Return the name of the realm that has the file of a target; None where its socket does not serve this caller.

    Args:
        target: a target whose socket was found beside the file.
    """
    connection = connection_to(target)
    try:
        return realm_with_file(connection, target)
    except NotServedError:
        return None
    finally:
        connection.close()


def _read(connection: CommandConnection, answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise connection.lost(error) from None


def _pieces(connection: CommandConnection, answer: http.client.HTTPResponse) -> Iterator[list[Any]]:
    """Yield the pieces of an answer.

    Raises:
        RemoteError: the answer was cut, or is none of such a server.
    """
    if answer.headers.get_content_type() != "application/x-ndjson":
        raise RemoteError("LOG_UNAVAILABLE", "The server answered something else than the output of a command.")
    try:
        while line := answer.readline():
            piece = json.loads(line)
            if not isinstance(piece, list) or not piece:
                raise ValueError("a line is no piece of output")
            yield piece
    except (OSError, http.client.HTTPException, ValueError) as error:
        connection.close()
        raise connection.lost(error) from None
    connection.close()
    raise connection.lost(ConnectionResetError("the answer ended before the exit code"))


def _held(pieces: Iterator[list[Any]]) -> Iterator[list[Any]]:
    """Yield the pieces of an answer once all of them have come."""
    taken: list[list[Any]] = []
    for piece in pieces:
        taken.append(piece)
        if piece[0] == "exit":
            break
    yield from taken


def _inputs(words: CommandWords) -> dict[str, Any]:
    """Return the contents of the files that the words name, and of stdin where they name it, in base64.

    Raises:
        RemoteError: ``FILE_UNREADABLE``.
    """
    names: list[str] = []
    takes_stdin = False
    for form in ("json", "file"):
        for value in words.values(form):
            takes_stdin = takes_stdin or value == STDIN
            if value != STDIN and (form == "file" or value.startswith("@")):
                names.append(value if form == "file" else value[1:])
    names += [value for form in ("found", "pair") for value in words.values(form) if os.path.isfile(value)]
    files = {name: content for name in dict.fromkeys(names) if (content := _content(name)) is not None}
    given = {"stdin": base64.b64encode(sys.stdin.buffer.read()).decode()} if takes_stdin else {}
    return {"files": files, **given}


def _content(name: str) -> str | None:
    """Return the content of a file; None where there is no such file, which the command reports.

    Raises:
        RemoteError: ``FILE_UNREADABLE``.
    """
    try:
        with open(name, "rb") as stream:
            return base64.b64encode(stream.read()).decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RemoteError("FILE_UNREADABLE", f"{name} cannot be read: {why}.", {"path": name}) from None


def _terminal() -> Mapping[str, Any] | None:
    """Return what the server needs to know of the terminal; None where stdout is none."""
    if not sys.stdout.isatty():
        return None
    import shutil

    size = shutil.get_terminal_size()
    named = {name: os.environ.get(variable, "")[:100] for variable, name in SHOWN_VARIABLES.items()}
    return {"columns": min(max(1, size.columns), 10_000), "lines": min(max(1, size.lines), 10_000), **named}


class _Printed:
    """Prints the pieces of an answer; of a repeated one, only the lines that were not printed before."""

    def __init__(self, *, quiet: bool) -> None:
        self._lines = {"out": 0, "err": 0}
        self._again = {"out": 0, "err": 0}
        self._begun = {"out": "", "err": ""}
        self._shows = not quiet and sys.stderr.isatty()
        self._progress = False

    def begin_again(self) -> None:
        """Forget lines that were begun: the whole output comes again."""
        self._begun = {"out": "", "err": ""}
        self._again = dict(self._lines)

    def take(self, pieces: Iterator[list[Any]]) -> int:
        """Print the pieces of an answer and return its exit code."""
        for kind, *rest in pieces:
            if kind in ("out", "err"):
                self._print(kind, self._begun[kind] + str(rest[0]))
            elif kind == "data":
                sys.stdout.flush()
                sys.stdout.buffer.write(base64.b64decode(rest[0]))
                sys.stdout.buffer.flush()
            elif kind == "progress" and self._shows:
                self._show(f"{rest[0]} {rest[1]}/{rest[2]}")
            elif kind == "exit":
                self._show("")
                for name in ("out", "err"):
                    if not self._again[name]:
                        self._write(name, self._begun[name])
                return int(rest[0])
        return CLEAN

    def _print(self, kind: str, text: str) -> None:
        """Print the whole lines of a text, and keep the last one that is begun."""
        end = text.rfind("\n") + 1
        self._begun[kind], text = text[end:], text[:end]
        count = text.count("\n")
        skipped = min(self._again[kind], count)
        self._again[kind] -= skipped
        for _ in range(skipped):
            text = text.partition("\n")[2]
        self._lines[kind] += count - skipped
        self._write(kind, text)

    def _write(self, kind: str, text: str) -> None:
        if text:
            self._show("")
            stream = sys.stdout if kind == "out" else sys.stderr
            stream.write(text)
            stream.flush()

    def _show(self, words: str) -> None:
        """Replace the line of progress; empty removes it."""
        if words or self._progress:
            sys.stderr.write(f"\r{words}\x1b[K")
            sys.stderr.flush()
        self._progress = bool(words)


def _report(desk: CommandContext, error: RemoteError, *, is_found: bool = False) -> int:
    """Print what is wrong and return the exit code of its error code."""
    from worldprotocol.cli.program import FINDINGS, USAGE, report_error

    hint = ""
    if error.code == "INTERRUPTED":
        exit_code = INTERRUPTED
    elif error.code == "USAGE":
        exit_code = USAGE
    else:
        from world.error_codes import ErrorCode

        known = error.code in ErrorCode.__members__
        exit_code = ErrorCode(error.code).exit_code if known else FINDINGS
    if is_found and error.code in ("RIGHT_MISSING", "NOT_THE_VERIFIED_ACTOR", "TOKEN_NOT_VALID"):
        hint = "\nA server has this log, and it refuses; --local works on the file without it."
    message = error.message
    if error.code == "SIGN_IN_REQUIRED":
        message += " Give an API token with --token-file FILE or WORLDCTL_TOKEN; `worldctl token create` prints one."
    return report_error(desk, error.code, message, error.details, exit_code, hint)
