"""Hooks of coding agents: a call of a tool is judged before it is made, and its result is recorded afterwards.

The caller is the agent's actor, by its token. Every refusal is an answer that blocks the call, in the form of the
agent; a request that fails has a status that is no success, which the installed settings treat as a refusal.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from fastapi import Body, Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.caller_events import Attended
from worldprotocol.agents.call_values import (
    Allowed,
    Answer,
    Denied,
    StillWaiting,
    ToolCall,
    content_of,
    digest_of,
    not_yet,
)
from worldprotocol.agents.command_runs import RUN
from worldprotocol.agents.confined_domain import COMMAND, check_domain
from worldprotocol.agents.files.history import Reader
from worldprotocol.agents.files.uses import FileUse
from worldprotocol.agents.hooks.clients import CLIENTS
from worldprotocol.agents.hooks.forms import (
    CallBegins,
    CallContinues,
    CallEnds,
    HookAdapter,
    SessionEnds,
    key_of,
    rewritten,
)
from worldprotocol.agents.hooks.settings import SAYS_GUARDED, HookPlace
from worldprotocol.agents.proxy.events import PROXY
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.server.call import Authorized, Call, answer
from worldprotocol.server.governed.calls import agents_of, begun
from worldprotocol.server.governed.presence import TOO_MANY
from worldprotocol.server.operation_table import handles

__all__ = ["answered_hook"]

MAX_DETAIL: Final = 500
"""Characters of an error that are recorded."""

MCP: Final = "mcp.call"
FILE_LIMIT_MS: Final = 60_000
MCP_LIMIT_MS: Final = 600_000
"""Longest times for which a call of a tool for files, or of an MCP server, may run without a report, in ms."""

RUN_LIMIT_MS: Final = 300_000
"""Longest time until the run of an allowed command begins, in ms; it extends the time while it lasts."""

MUST_CONFINE: Final = (
    "Shell commands are refused here: [agents] confine is true, and nothing confines this one. The operator enables "
    'user namespaces (`worldctl doctor` says what is missing), states a boundary, or sets confine to "auto"; hooks '
    "of an earlier release are installed again, and commands of Cursor are never confined."
)
"""The answer to a shell command where ``[agents] confine`` is true and the boundary is ``none``."""

NOT_RENEWED: Final = f"This session is not renewed: {TOO_MANY} [{ErrorCode.TOO_MANY_OPEN}]"
"""What the answer to a call says where the renewals of its session are refused."""

Event = Annotated[dict[str, Any], Body(description="The event, as the agent sends it to its hooks.")]


@handles("hooks.call")
async def answered_hook(call: Authorized, request: Request, client: str, body: Event) -> Response:
    """Judge a call of a tool, record its result, or give up the calls of a session that ended."""
    adapter, agents, arrived = CLIENTS.get(client), agents_of(call), call.hosted.realm._acting.now_ms()
    if adapter is None:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"There are no hooks of {client[:80]!r}; there are those of {', '.join(CLIENTS)}."
        )
    hook = HookPlace.stated(request.headers, call.hosted.name)  # an untrue one harms its sender alone
    terms = agents.terms(call.actor_id, is_rewritten=hook is not None)
    event = await call.run(partial(adapter.read, body, agents.project, terms=terms))
    if isinstance(event, CallBegins) and client != PROXY:
        await call.run(partial(_check_confined, call))
    calls = ToolCalls(call.realm, call.actor_id, getattr(event, "worker", None) or client)
    if isinstance(event, CallBegins):
        subagent = body.get("agent_id")
        trace: dict[str, Any] = {"agentId": subagent[:MAX_DETAIL]} if isinstance(subagent, str) else {}
        if event.shell is not None and hook is not None:
            trace[RUN] = True
        return answer(await _before(call, request, (adapter, calls, client), event, (trace, hook)))
    if isinstance(event, CallEnds):
        key = key_of(client, event.session, event.call_id)
        if event.outcome == "not made" or not await call.run(partial(calls.is_run, key)):
            await call.run(partial(_after, call, calls, key, event))
        else:  # its run reports; in the background, it may not even have begun
            expect = agents.absent(call.hosted.realm).expect_run
            await call.run(partial(expect, (call.actor_id, key)))
    elif isinstance(event, CallContinues):
        key = key_of(client, event.session, event.call_id)
        return answer({"isBeingMade": await call.run(partial(calls.extend, key))})
    elif isinstance(event, SessionEnds):
        absent, name = agents.absent(call.hosted.realm), (call.actor_id, event.session)
        await call.run(partial(absent.end_session, name, "process", until=arrived, realm=call.realm))
    return answer({})


def _check_confined(call: Call) -> None:
    """Check that words alone approve no shell command in this realm.

    Raises:
        RefusedError: ``HOOKS_NOT_CONFIGURED``.
    """
    adopted = call.hosted.realm.realm().domain
    if adopted is not None:
        check_domain(adopted.schema)


async def _before(
    call: Call,
    request: Request,
    by: tuple[HookAdapter, ToolCalls, str],
    event: CallBegins,
    known: tuple[dict[str, Any], HookPlace | None],
) -> dict[str, Any]:
    (adapter, calls, client), (more, hook) = by, known
    trace = {"client": client, "session": event.session, "callId": event.call_id, "tool": event.tool, **more}
    key = key_of(client, event.session, event.call_id)
    agents, exclusive = agents_of(call), event.excludes_equal
    agents.presence.meet((call.actor_id, event.session), client, event.version)
    if SAYS_GUARDED in request.headers:
        agents.presence.expect((call.actor_id, event.session))
    reader = Reader(call.actor_id, client, event.session, more.get("agentId"))
    proposed = partial(agents.files.proposed, call.realm, reader, key, has_own_id=event.has_own_id)
    wait_s = agents.wait_s if event.wait_s is None else min(event.wait_s, agents.wait_s)
    if agents.must_confine and event.intent.action == COMMAND and event.intent.input.get("boundary") == "none":
        return adapter.deny(event, f"{MUST_CONFINE} [{ErrorCode.CONFINEMENT_MISSING}]")
    try:
        intent = await call.run(partial(proposed, event.intent))
        tool_call = ToolCall(
            key,
            intent.action,
            intent.input,
            event.has_own_id,
            trace,
            excludes_equal=exclusive,
            attended=_attended(client, intent.action, call.realm._acting.worker, is_run=RUN in more),
        )
        if event.follows:
            why = "The agent began its next call."
            await call.run(partial(calls.conclude, event.session, why, before=tool_call))
        found = await begun(call, request, calls, tool_call, wait_s)
        if isinstance(found, Allowed):
            found = await call.run(partial(_checked, call, calls, found, (key, event.intent.files)))
    except RefusedError as refused:
        return adapter.deny(event, f"{refused.message} [{refused.code}]")
    if found is None:
        return adapter.deny(event, "The request was given up before there was an answer.")
    is_refused = partial(agents.absent(call.hosted.realm).is_refused, (call.actor_id, event.session))
    more_said = f" {NOT_RENEWED}" if await call.run(is_refused) else ""
    if isinstance(found, Allowed):
        if hook is not None:
            event = replace(event, rewrites=rewritten(hook, key, event, agents.project.root))
        told = adapter.allow(event, f"Allowed by proposal {found.proposal.proposal_id}.{more_said}")
    else:
        told = adapter.deny(event, _why(found) + more_said)
    return {**told, **_details(found)} if event.is_for_program else told


def _checked(call: Call, calls: ToolCalls, found: Allowed, by: tuple[str, FileUse]) -> Allowed | Denied:
    """Return an allowed call, or its refusal where it would lose a change of another; that ends it."""

    def refuse(code: str, sentence: str) -> Denied:
        calls.report(by[0], failure=(code, f"{sentence}."))
        return Denied(found.proposal, code, sentence)

    return agents_of(call).files.checked(call.realm, found.proposal, by, refuse) or found


def _attended(client: str, action: str, server: str, *, is_run: bool) -> Attended:
    """Return how a call is attended; the time of a command is that of its run, and a proxy states its own."""
    if client == PROXY:
        return Attended(by="proxy", server=server)
    if is_run:
        return Attended(by="run", limit_ms=RUN_LIMIT_MS, server=server)
    limit_ms = FILE_LIMIT_MS if action.startswith("file.") else MCP_LIMIT_MS if action == MCP else None
    return Attended(by="hook", limit_ms=limit_ms, server=server)


def _details(found: Answer) -> dict[str, Any]:
    """Return an answer in members for programs."""
    if isinstance(found, Allowed):
        more: dict[str, Any] = {"isRepeatable": found.claim.idempotent}
    elif isinstance(found, Denied):
        more = {"code": found.code}
    else:
        more = {"waitsFor": found.waits_for}
    return {"proposalId": found.proposal.proposal_id, **more}


def _why(found: Denied | StillWaiting) -> str:
    name = found.proposal.proposal_id
    if isinstance(found, Denied):
        return f"Refused: {found.reason.rstrip('.')}. [{found.code}, proposal {name}]"
    return not_yet(name, found.waits_for)


def _after(call: Call, calls: ToolCalls, key: str, event: CallEnds) -> None:
    """Record the result of a call: what the tool answered, and the files that it touched, by their hashes only."""
    files = agents_of(call).files
    try:
        if event.outcome == "made":
            touched = files.end(call.realm, call.actor_id, key, is_partial=event.is_partial)
            calls.report(key, {**(event.digest or digest_of(content_of(event.detail))), **touched})
            return
        files.forget(call.actor_id, key)
        if event.outcome == "not made" and event.worker is not None:
            calls.give_up(key, str(event.detail or "It was given up.")[:MAX_DETAIL])
        else:
            code = "TOOL_FAILED" if event.outcome == "failed" else "TOOL_NOT_CALLED"
            words = event.detail if isinstance(event.detail, str) else "The tool stated no reason."
            calls.report(key, failure=(code, words[:MAX_DETAIL] or "The tool stated no reason."))
    except RefusedError as refused:
        if refused.code != "CLAIM_LOST":  # it came too late, which is recorded
            raise
