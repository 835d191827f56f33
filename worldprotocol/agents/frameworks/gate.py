"""The gate through which a program's own tools are called: asked for before, and reported afterwards.

``begin`` proposes a call under the caller's id of it, and returns whether it may be made; ``make`` makes it and reports
its result. The realm is local, or on a server; either way ``worldprotocol.agents.tool_calls`` answers. A call is
made once: where it was begun before and its report is missing, it is in doubt, and where it was reported, the recorded
result is returned. Source: docs/agents.md.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from pydantic_core import PydanticSerializationError, to_jsonable_python

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import thaw
from world.model.snapshot import EffectAnswer, ErrorValue
from world.state.effect_claim import EffectClaim, EffectReport, read_form
from world.state.ports import Performed
from worldprotocol.agents.call_values import Allowed, Denied, ToolCall, digest_of
from worldprotocol.agents.frameworks.narrowing import emptied, narrowed, patterns_of
from worldprotocol.agents.frameworks.outcomes import Begun, MadeBefore, Pause, Permit, Refusal
from worldprotocol.agents.hooks.forms import key_of
from worldprotocol.agents.intents import Intent, other
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.leasing.async_calls import in_thread
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.realm import WAIT_S, RemoteRealm

__all__ = ["GovernedTool", "ToolGate", "Tools"]

R = TypeVar("R")

_LOGGER = logging.getLogger("worldprotocol")

MAX_RESULT: Final = 16_384
"""Longest result that is recorded, in bytes of canonical JSON; of a longer one the hash and the size are."""

MAX_DETAIL: Final = 500
"""Characters of an error that are recorded."""

AT_ONCE_S: Final = 600.0
"""Longest time of one look at a local realm, in seconds."""

TOLD: Final = frozenset({"INVALID_INPUT", "INVALID_VALUE", "NOT_CANONICAL", "IDEMPOTENCY_CONFLICT"})
"""Codes of refusals that are the fault of one call; others are errors of the program."""


@dataclass(frozen=True, slots=True)
class GovernedTool:
    """Which intent a call of a tool is.

    Args:
        action: the action, whose input has the arguments of the tool; None is ``tool.use``.
        narrows: by argument the pattern of the data that each of its values means, in which ``{}`` is the value. They
            are proposed as the scope; a value whose pattern is not in the approved scope is left out of the call. It
            is not made where no value of an argument is left.
        writes: patterns of further data that the action writes.
    """

    action: str | None = None
    narrows: Mapping[str, str] = field(default_factory=dict)
    writes: tuple[str, ...] = ()


Tools = Mapping[str, GovernedTool | str]
"""By name of the tool: which intent a call of it is, or its action alone."""


Found = tuple[str, EffectClaim] | MadeBefore | Refusal | Pause


class ToolGate:
    """The gate of one agent.

    Args:
        realm: the realm: open for acting, or connected.
        actor: id of the agent's actor; None is the one that the server verified.
        client: name of the framework, which is recorded.
        tools: which intents the calls are; other tools are ``tool.use``.
        wait_s: how long a call is held while it waits for people or resources, in seconds; None is unlimited.
        keep_results: record results of up to 16 KiB; else, and those that are longer, their hash and size.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR`` for a local realm without an actor.
    """

    def __init__(
        self,
        realm: Realm,
        actor: str | None = None,
        *,
        client: str,
        tools: Tools | None = None,
        wait_s: float | None = 0.0,
        keep_results: bool = True,
    ) -> None:
        if actor is None and not isinstance(realm, RemoteRealm):
            raise RefusedError(
                ErrorCode.UNKNOWN_ACTOR,
                "The realm is on this machine and verifies no actor: name the actor that calls.",
            )
        self._realm = realm
        self._actor = actor
        self._client = client
        given = {name: GovernedTool(one) if isinstance(one, str) else one for name, one in (tools or {}).items()}
        self._tools: Mapping[str, GovernedTool] = given
        self._wait_s = wait_s
        self._keep_results = keep_results

    # Before the call

    def begin(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str,
        session: str = "",
        intent: Intent | None = None,
        agent_id: str | None = None,
    ) -> Begun:
        """Propose a call, wait for the time of the gate, and claim it where it is allowed.

        Args:
            tool: name of the tool.
            arguments: its arguments.
            call_id: the caller's own id of the call, the same where it is repeated.
            session: within which that id is unique.
            intent: what the call is where the tool has no action of its own; None is ``tool.use``.
            agent_id: id of the subagent that makes it; None is the agent itself.

        Raises:
            RefusedError: faults of the program or the realm, such as ``UNKNOWN_ACTION``, ``RIGHT_MISSING``,
                ``NOT_THE_VERIFIED_ACTOR`` and ``LOG_UNAVAILABLE``.
        """
        how, given, call = self._call(tool, arguments, call_id, session, intent, agent_id)
        found = self._answered(call)
        if isinstance(found, tuple):
            proposal_id, claim = found
            kept = narrowed(how.narrows, given, claim.approved_scope, claim.scope_rules)
            permit, empty = Permit(proposal_id, claim, given, kept), emptied(how.narrows, given, kept)
            if not _is_still(given, arguments):
                reason = "The program changed the arguments while the call waited. Nothing was done"
            elif empty is None:
                return permit
            else:
                reason = f"Of the values of {empty!r} none is within the approved scope. Nothing was done"
            return self.refuse(permit, "TOOL_NOT_CALLED", reason)
        assert found is not None
        return found

    def refuse(self, permit: Permit, code: str, reason: str) -> Refusal:
        """Report that an allowed call is not made, and return that.

        Args:
            permit: its permit.
            code: code of the failure.
            reason: why, in a sentence without its end.
        """
        self._report(permit, None, (code, reason))
        return Refusal(code, reason, permit.proposal_id)

    def has_action(self, tool: str) -> bool:
        """Return whether a tool has an action of its own."""
        return tool in self._tools and self._tools[tool].action is not None

    def look(
        self, tool: str, arguments: Mapping[str, Any], call_id: str, session: str = ""
    ) -> MadeBefore | Refusal | Pause | None:
        """Propose a call, wait for the time of the gate, and return why it is not to be begun now; nothing is claimed.

        Args:
            tool: name of the tool.
            arguments: its arguments.
            call_id: the caller's own id of the call, the same where it is begun later.
            session: within which that id is unique.

        Returns:
            The answer; None where ``begin`` has it.

        Raises:
            RefusedError: as ``begin``.
        """
        found = self._answered(self._call(tool, arguments, call_id, session)[2], is_question=True)
        assert not isinstance(found, tuple)
        return found

    async def look_async(
        self, tool: str, arguments: Mapping[str, Any], call_id: str, session: str = ""
    ) -> MadeBefore | Refusal | Pause | None:
        """Ask in a thread of its own; see ``look``."""
        return await in_thread(partial(self.look, tool, arguments, call_id, session), "worldprotocol-call")

    def _call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str,
        session: str,
        intent: Intent | None = None,
        agent_id: str | None = None,
    ) -> tuple[GovernedTool, dict[str, Any], ToolCall]:
        how = self._tools.get(tool)
        given = _json(arguments)
        if how is None or how.action is None:
            how = how or GovernedTool()
            intent = intent or other(tool, given)
        else:
            intent = Intent(how.action, given)
        call = ToolCall(
            key_of(self._client, session, call_id or uuid4().hex),
            intent.action,
            intent.input,
            trace={
                "client": self._client,
                "session": session,
                "callId": call_id,
                "tool": tool,
                **({} if agent_id is None else {"agentId": agent_id}),
            },
            scope=(*patterns_of(how.narrows, given), *how.writes),
            attempt=uuid4().hex[:16],
        )
        return how, given, call

    async def begin_async(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        call_id: str,
        session: str = "",
        intent: Intent | None = None,
    ) -> Begun:
        """Propose a call in a thread of its own; see ``begin``. A cancelled task leaves no claim behind."""
        return await self.begun_async(partial(self.begin, tool, arguments, call_id, session, intent))

    async def begun_async(self, begin: Callable[[], Begun]) -> Begun:
        """Return what a function returns that begins a call, in a thread of its own; see ``begin_async``."""
        beginning = in_thread(begin, "worldprotocol-call")
        try:
            return await asyncio.shield(beginning)
        except asyncio.CancelledError:
            beginning.add_done_callback(self._give_up)
            raise

    def _give_up(self, beginning: asyncio.Future[Begun]) -> None:
        if beginning.cancelled() or beginning.exception() is not None:
            return
        begun = beginning.result()
        if isinstance(begun, Permit):
            error = ("TOOL_NOT_CALLED", "The run of the agent was cancelled before the call.")
            threading.Thread(target=partial(self._report, begun, None, error), daemon=True).start()

    def _answered(self, call: ToolCall, *, is_question: bool = False) -> Found | None:
        """Return the answer about a call, once the time of the gate is over at the latest; None: it may be begun."""
        end = None if self._wait_s is None else time.monotonic() + self._wait_s
        while True:
            left = AT_ONCE_S if end is None else max(0.0, end - time.monotonic())
            try:
                found = self._asked(call, min(left, AT_ONCE_S), is_question=is_question)
            except RefusedError as refused:
                if refused.code not in TOLD:
                    raise
                return Refusal(refused.code, refused.message)
            if not isinstance(found, Pause) or (end is not None and time.monotonic() >= end):
                return found

    def _asked(self, call: ToolCall, wait_s: float, *, is_question: bool) -> Found | None:
        if isinstance(self._realm, RemoteRealm):
            if self._actor is not None:
                self._realm._check_verified(self._actor)
            return _asked_server(self._realm, call, wait_s, is_question=is_question)
        calls = ToolCalls(self._realm, self._actor or "", self._client)
        answer = calls.ask(call, wait_s) if is_question else calls.begin(call, wait_s)
        if answer is None:
            return None
        name = answer.proposal.proposal_id
        if isinstance(answer, Allowed):
            return name, answer.claim
        if isinstance(answer, Denied):
            return _denied(name, answer.code, answer.reason, answer.result)
        return Pause(name, answer.waits_for)

    # The call

    def make(self, permit: Permit, body: Callable[[], R], read: Callable[[R], Any] | None = None) -> R:
        """Make a call, report its result or its exception, and return or raise that.

        Args:
            permit: the permit.
            body: makes the call.
            read: returns of the result what is recorded, or an exception where it states a failure.
        """
        try:
            result = body()
        except Exception as error:
            self.made(permit, error)
            raise
        self.made(permit, result if read is None else read(result))
        return result

    async def make_async(
        self, permit: Permit, body: Callable[[], Awaitable[R]], read: Callable[[R], Any] | None = None
    ) -> R:
        """Make a call of a coroutine function; see ``make``."""
        try:
            result = await body()
        except Exception as error:
            await self.made_async(permit, error)
            raise
        await self.made_async(permit, result if read is None else read(result))
        return result

    def made(self, permit: Permit, value: Any, more: Mapping[str, Any] | None = None) -> None:
        """Report a result, with further members; an exception in its place is a failure.

        A report that fails is logged, and the call is in doubt: the tool has run, and its result is the caller's. So is
        an action that fails after the call.
        """
        if isinstance(value, Exception):
            self._report(permit, None, ("TOOL_FAILED", f"{type(value).__name__}: {value}"[:MAX_DETAIL]))
        else:
            self._report(permit, {**_recorded(value, keep=self._keep_results), **(more or {})}, None)

    async def made_async(self, permit: Permit, value: Any) -> None:
        """Report in a thread of its own, also where the task is cancelled meanwhile; see ``made``."""
        await asyncio.shield(in_thread(partial(self.made, permit, value), "worldprotocol-report"))

    def _report(self, permit: Permit, value: Any, failure: tuple[str, str] | None) -> None:
        claim = permit.claim
        error = None if failure is None else ErrorValue.at(*failure, claim.intent.body.type, "", claim.now)
        try:
            status = _completed(self._realm, claim, Performed(EffectAnswer(value, error=error)))
        except (WorldProtocolError, OSError) as unreported:
            _LOGGER.warning("The result of the call %s could not be reported: %s", permit.proposal_id, unreported)
            return
        if status == "failed" and error is None:
            _LOGGER.warning(
                "The call %s was made, but its action failed afterwards, so the state is unchanged: `worldctl show` "
                "says why; often `writes` does not name what the action changes.",
                permit.proposal_id,
            )


def _completed(realm: Realm, claim: EffectClaim, performed: Performed) -> str:
    """Report a result, and return the status of its proposal."""
    if isinstance(realm, RemoteRealm):
        report = EffectReport.of(performed).to_wire()
        return str(realm._connection.post("/calls:report", {"claim": claim.to_wire(), "report": report})["status"])
    return realm.complete_effect(claim, performed).status


def _asked_server(realm: RemoteRealm, call: ToolCall, wait_s: float, *, is_question: bool) -> Found | None:
    body = {
        "claim": not is_question,
        "action": call.action,
        "input": call.input,
        "scope": list(call.scope),
        "trace": call.trace,
        "attempt": call.attempt,
    }
    found = realm._connection.post("/calls", body, key=call.key, wait_s=min(wait_s, WAIT_S))
    name = found["proposalId"]
    if found["answer"] == "open":
        return None
    if found["answer"] == "allowed":
        return name, read_form(EffectClaim, found["claim"])
    if found["answer"] == "denied":
        result = found["result"]
        return _denied(name, found["code"], found["reason"], None if result is None else EffectAnswer.from_wire(result))
    return Pause(name, found["waitsFor"])


def _denied(proposal_id: str, code: str, reason: str, result: EffectAnswer | None) -> MadeBefore | Refusal:
    if result is not None and isinstance(result.value, Mapping) and "value" in result.value:
        return MadeBefore(thaw(result.value["value"]))
    return Refusal(code, reason, proposal_id)


def _json(arguments: Mapping[str, Any]) -> Any:
    """Return arguments as JSON.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    try:
        return to_jsonable_python(dict(arguments))
    except (PydanticSerializationError, ValueError) as error:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"The arguments of the call have no form in JSON: {error}"[:MAX_DETAIL]
        ) from None


def _is_still(given: Any, arguments: Mapping[str, Any]) -> bool:
    """Return whether arguments have the JSON that was judged."""
    try:
        found: bool = _json(arguments) == given
    except RefusedError:
        return False
    return found


def _recorded(value: Any, *, keep: bool) -> dict[str, Any]:
    """Return what is recorded of a result."""
    try:
        found = to_jsonable_python(value)
        told = canonical_bytes(found)
    except (RefusedError, PydanticSerializationError, ValueError, TypeError, OverflowError):
        told, keep = repr(value).encode("utf-8", "surrogatepass"), False
        found = None
    if keep and len(told) <= MAX_RESULT:
        return {"value": found}
    return digest_of(told)
