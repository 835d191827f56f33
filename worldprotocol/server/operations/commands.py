"""The operation that runs a command of ``worldctl`` as the verified caller, and sends what it prints as it does."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import AsyncIterator, Callable
from typing import Final

import orjson
from fastapi import Response
from fastapi.responses import StreamingResponse

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.state.access import right_fault
from worldprotocol.api.bootstrap import LoggedEvent
from worldprotocol.api.callers.request_keys import keyed
from worldprotocol.operations.visibility import Visibility
from worldprotocol.server.bodies import CommandToRun
from worldprotocol.server.call import Authorized, Call, Key
from worldprotocol.server.commands.caller_realm import caller_realm, reading_realm
from worldprotocol.server.commands.command_table import RemoteCommand
from worldprotocol.server.commands.output import (
    CommandOutput,
    CommandRequest,
    CommandStoppedError,
    Following,
    RunCommand,
)
from worldprotocol.server.commands.permission import permit
from worldprotocol.server.operation_table import handles

_LOGGER = logging.getLogger("worldprotocol.server")

MEDIA_TYPE: Final = "application/x-ndjson"
FAILED: Final = 1
STOPPED: Final = 130
ENOUGH: Final = -1
"""In place of an exit code: the command has as many events as it was asked for."""


@handles("commands.run")
async def run_command(call: Authorized, body: CommandToRun, idempotency_key: Key = None) -> Response:
    """Run a command; the answer has a JSON array on each line: `out` or `err` with a text, and at last `exit`."""
    run = call.hosted.run_command
    if run is None:
        raise RefusedError(ErrorCode.NOT_OVER_SERVER, "This server was started by a program that executes no commands.")
    said = body.model_dump(include={"arguments", "files", "stdin"})
    caller = await call.run(lambda: keyed(call.verified, idempotency_key, call.operation.name, said))
    files, stdin = {name: _decoded(text) for name, text in body.files.items()}, _decoded(body.stdin or "")
    permitted = await call.run(lambda: permit(call, body.arguments))
    realm, output = call.hosted.realm, CommandOutput()
    request = CommandRequest(
        words=permitted.words,
        reader=reading_realm(realm),
        acting=realm if permitted.row.is_of_engine else caller_realm(realm, caller, output.check),
        output=output,
        files=files,
        stdin=stdin,
        terminal=None if body.terminal is None else body.terminal.environ(),
        may_see=permitted.may_see,
        may_list=permitted.may_list,
    )
    call.service.commands.start(call.actor_id, output, lambda: _run(call, permitted.row, run, request))
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(_lines(output), media_type=MEDIA_TYPE, headers=headers)


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise RefusedError(ErrorCode.INVALID_VALUE, "The content of a file, or of stdin, is not base64.") from None


async def _run(call: Call, row: RemoteCommand, run: RunCommand, request: CommandRequest) -> None:
    """Run a command to its exit code; where it follows the log, with the events that are committed later."""
    commands, output = call.service.commands, request.output

    def execute(step: Callable[[], int]) -> int:
        try:
            return step()
        except CommandStoppedError:
            return STOPPED
        except WorldProtocolError as error:
            answered = call.service.answered(call.hosted.name, error)
            return _ended(request, answered.code, answered.message)
        except Exception:
            _LOGGER.exception("The command %r failed", row.path)
            words = "The server failed to run this command; its log has the cause."
            return _ended(request, ErrorCode.SERVER_FAILED, words)

    code = FAILED
    try:
        code = await commands.in_thread(lambda: execute(lambda: run(request)))
        if request.following is not None and code == 0:
            code = await _followed(call, row, request.following, request, execute)
    except RefusedError as refused:  # too many requests wait
        _ended(request, refused.code, refused.message)
    finally:
        output.end(code)


Execute = Callable[[Callable[[], int]], int]


async def _followed(
    call: Call, row: RemoteCommand, following: Following, request: CommandRequest, execute: Execute
) -> int:
    """Hand over the events after those that a command has read, until it has enough or its caller is gone."""
    going_on = asyncio.ensure_future(_take_events(call, row, following, request, execute))
    request.output.when_stopped(going_on.cancel)
    try:
        return await going_on
    except asyncio.CancelledError:
        return STOPPED


async def _take_events(
    call: Call, row: RemoteCommand, following: Following, request: CommandRequest, execute: Execute
) -> int:
    service, realm, commands = call.service, call.hosted.realm, call.service.commands
    commands.release(request.output)
    with call.waits:
        async for batch in call.hosted.log_watch.events(following.after, following.topics):
            view = await service.threads.run(realm.realm)
            fault = right_fault(view, call.verified, row.rights, service.clock.now_ms())
            if fault is not None:
                return _ended(request, fault.code, fault.message)
            if Visibility(view, call.verified, call.hosted.redactions).rules != call.visibility.rules:
                return _ended(request, ErrorCode.RIGHT_MISSING, "The redaction of the caller has changed; ask again.")

            def step(events: list[LoggedEvent] = batch) -> int:
                return ENOUGH if any(following.take(event) for event in events) else 0

            code = await commands.in_thread(lambda step=step: execute(step))  # type: ignore[misc]
            if code:
                return 0 if code == ENOUGH else code
    if not service.is_stopping:
        return _ended(request, ErrorCode.REALM_MOVED, "The realm was moved to another place; run the command again.")
    return _ended(request, ErrorCode.SERVER_STOPPING, "The server is stopping; run the command again later.")


def _ended(request: CommandRequest, code: str, message: str) -> int:
    """Print why a command ends, and return its exit code."""
    request.output.say(f"error: {message} [{code}]")
    return FAILED


async def _lines(output: CommandOutput) -> AsyncIterator[bytes]:
    """Yield the pieces of an output; where the caller is gone, the command stops at its next one."""
    try:
        async for piece in output.pieces():
            yield orjson.dumps(piece) + b"\n"
    finally:
        output.stop()
