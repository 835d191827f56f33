"""One call of a tool through the proxy: judged, checked against the pins, forwarded once, and reported.

1. The tool's definition is compared with its pin, and the call is submitted with the result. While people or leases
   are waited for, the request is repeated until the wait of the settings is over.
2. An allowed call is compared again, because the upstream may have changed its tools meanwhile. While its time is not
   over, it is forwarded: its name and arguments as they were judged, and nothing else of the request.
3. Its answer is reported before it is passed on. A call without an answer is not reported, so that it is in doubt.

From the permission on, a crash leaves the call in doubt: nothing is forwarded a second time unless the pinned
annotations say that a repetition is harmless. Source: docs/agents.md.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakValueDictionary

import anyio
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT, JSONRPCError

from worldprotocol.agents.call_values import content_of, digest_of, exact_integers
from worldprotocol.agents.proxy.events import Outcome, begins, continues, ends
from worldprotocol.agents.proxy.pins import Pins, Status, statuses
from worldprotocol.agents.proxy.realm_client import RealmClient, RealmError
from worldprotocol.agents.proxy.upstream import UpstreamError
from worldprotocol.agents.proxy.upstream_session import UpstreamSession

__all__ = ["CallPlace", "CallSettings", "GovernedCall", "Result", "refusal"]

Result = Mapping[str, Any] | JSONRPCError
"""The answer to the client: the result of ``tools/call``, or an error of the upstream."""

SLICE_S: Final = 20.0
"""Longest time that one request waits for a decision, in seconds."""

RETRY_S: Final = 0.5
REPORT_S: Final = 30.0
"""Time for which the report of a result is repeated, in seconds."""

GRACE_S: Final = 5.0
"""Time in which a forwarded call that the client gave up may still be answered, in seconds."""

MAX_DETAIL: Final = 500

WITHOUT_ANSWER: Final = frozenset({CONNECTION_CLOSED, REQUEST_TIMEOUT, PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR})
"""Errors by which the HTTP transport says that there is no answer."""


@dataclass(frozen=True, slots=True)
class CallSettings:
    """Times of calls.

    Args:
        wait_s: longest wait for a decision, in seconds.
        answer_s: longest wait for the upstream's answer, in seconds.
        silence_s: time after which a call whose proxy is silent is in doubt, in seconds.
    """

    wait_s: float = 50.0
    answer_s: float = 600.0
    silence_s: float = 60.0


@dataclass(frozen=True, slots=True)
class CallPlace:
    """Where calls are judged and forwarded.

    Args:
        realm: the realm.
        upstream: the upstream.
        server: name of the upstream in intents and pins.
        session: id of the client's session.
        process: id of this proxy.
        settings: times.
        turns: see ``turn``.
    """

    realm: RealmClient
    upstream: UpstreamSession
    server: str
    session: str
    process: str
    settings: CallSettings
    turns: WeakValueDictionary[str, anyio.Lock] = field(default_factory=WeakValueDictionary)

    def turn(self, name: str, arguments: Any) -> anyio.Lock:
        """Return the lock that equal calls of this proxy hold one after the other."""
        return self.turns.setdefault(json.dumps([name, arguments], sort_keys=True), anyio.Lock())

    async def status(self, name: str) -> tuple[Status, Pins | None]:
        """Return whether a tool is as it was pinned, by the pins and the list of this moment.

        Raises:
            RealmError: the pins could not be read.
            UpstreamError: the tools could not be listed.
        """
        pins = await self.realm.pins(self.server)
        found = statuses(await self.upstream.tools(), pins)
        absent: Status = "new" if pins is None or name not in pins.tools else "changed"
        return found.get(name, absent), pins


class GovernedCall:
    """See the module.

    Args:
        place: where it is judged and forwarded.
        call_id: its id within the session.
        name: name of the tool.
        arguments: its arguments, JSON.
        progress: the token under which the upstream may state progress; None is none.
    """

    def __init__(self, place: CallPlace, call_id: str, name: str, arguments: Any, progress: int | None = None) -> None:
        self._place = place
        self._name, self._arguments, self._progress = name, arguments, progress
        self._named = {"session": place.session, "callId": call_id, "process": place.process}
        self._proposal = ""
        self._extended_at = 0.0
        self._beats: asyncio.Future[None] | None = None
        self._asking: asyncio.Future[dict[str, Any]] | None = None
        self._scope = anyio.CancelScope()

    def hurry(self) -> None:
        """Give a forwarded call only a short time from now on, because the client does not wait for it."""
        self._scope.deadline = min(self._scope.deadline, anyio.current_time() + GRACE_S)

    async def made(self) -> Result:
        """Return the result for the client; a call that is cancelled before it is forwarded is given up."""
        turn = self._place.turn(self._name, self._arguments)
        if not await _is_acquired(turn, self._place.settings.wait_s):
            return refusal("Not yet: an equal call that was begun before has not ended. Nothing was done.")
        try:
            return await self._made_in_turn()
        finally:
            turn.release()
            if self._beats is not None:
                self._beats.cancel()

    async def _made_in_turn(self) -> Result:
        try:
            allowed = await self._allowed()
        except BaseException:
            await self._give_up("The client gave the call up, or the proxy ended, before it was made.")
            raise
        if allowed is not None:
            return allowed
        forwarding = asyncio.ensure_future(self._forwarded())
        try:
            return await asyncio.shield(forwarding)
        except asyncio.CancelledError:
            self.hurry()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([forwarding])
            raise

    # Before the call

    async def _allowed(self) -> Result | None:
        """Return None where the call may be forwarded now, else the refusal."""
        try:
            status, pins = await self._place.status(self._name)
        except (RealmError, UpstreamError) as error:
            return refusal(f"Refused, because it cannot be checked whether the tool is as it was pinned: {error}")
        self._extended_at = anyio.current_time()
        decision = await self._decision(self._event(status, pins))
        if isinstance(decision, str):
            await self._give_up(decision)
            return refusal(decision)
        self._proposal = str(decision.get("proposalId", ""))
        if decision["decision"] != "allow":
            return refusal(str(decision.get("reason") or "The realm refused this."), decision)
        self._beats = asyncio.ensure_future(self._beating())
        code, words = "TOOL_NOT_PINNED", ""
        try:
            status, _ = await self._place.status(self._name)
        except (RealmError, UpstreamError) as error:
            words = f"it cannot be checked whether the tool is as it was pinned: {error}"
        else:
            if status != "pinned":
                words = f"the definition of the tool is not the one that is pinned; see `worldctl mcp pin` ({status})"
            elif not await self._is_held():
                code, words = "TOOL_NOT_CALLED", "its time was over, or could not be extended, before it was forwarded"
        if not words:
            return None
        await self._give_up(words)
        return refusal(f"Refused, because {words.rstrip('.')}. Nothing was done.", {"code": code, **decision})

    async def _is_held(self) -> bool:
        """Return whether the call still counts as being made, so that no other process may make it."""
        if anyio.current_time() - self._extended_at < self._place.settings.silence_s / 2:
            return True
        try:
            return await self._extended()
        except RealmError:
            return False

    def _event(self, status: Status, pins: Pins | None) -> dict[str, Any]:
        is_repeatable = status == "pinned" and pins is not None and pins.is_repeatable(self._name)
        arguments, integers = exact_integers(self._arguments)
        return {
            **self._named,
            "server": self._place.server,
            "name": self._name,
            "arguments": arguments,
            "integers": integers,
            "pin": status,
            "timeLimitMs": int(self._place.settings.silence_s * 1_000),
            "excludesEqual": not is_repeatable,
        }

    async def _decision(self, call: Mapping[str, Any]) -> dict[str, Any] | str:
        """Return the decision on the call; a sentence where there is none."""
        end = anyio.current_time() + self._place.settings.wait_s
        while True:
            left = max(0.0, end - anyio.current_time())
            try:
                asked = self._place.realm.decide(begins(call, wait_s=min(left, SLICE_S)))
                self._asking = asyncio.ensure_future(asked)
                answer = await asyncio.shield(self._asking)
            except RealmError as error:
                if error.is_final or left == 0:
                    return f"Refused, because the realm could not be asked: {error}"
            else:
                if "waitsFor" not in answer or left == 0:
                    return answer
            await anyio.sleep(min(RETRY_S, left))

    async def _give_up(self, reason: str) -> None:
        """Report that the call is not made; once more after a question under way, which may reach the realm later."""
        try:
            with anyio.move_on_after(GRACE_S, shield=True):
                asking = self._asking if self._asking is not None and not self._asking.done() else None
                await self._not_made(reason)
                if asking is not None:
                    await asyncio.wait([asking], timeout=GRACE_S / 2)
                    await self._not_made(reason)
        finally:
            if self._asking is not None and not self._asking.cancel() and not self._asking.cancelled():
                self._asking.exception()  # what it was is of no interest any more

    async def _not_made(self, reason: str) -> None:
        with suppress(RealmError):  # an allowed call that is not reported is in doubt, one that waits stays open
            await self._place.realm.send(ends(self._named, "not made", reason))

    # The call and its report

    async def _forwarded(self) -> Result:
        with self._scope:
            return await self._answered()
        return self._unknown("the client did not wait for the answer")

    async def _answered(self) -> Result:
        given: dict[str, Any] = {"name": self._name, "arguments": self._arguments}
        if self._progress is not None:
            given["_meta"] = {"progressToken": self._progress}
        try:
            answer = await self._place.upstream.ask("tools/call", given, self._place.settings.answer_s)
        except UpstreamError as error:
            return self._unknown(str(error))
        if isinstance(answer, JSONRPCError):
            if self._place.upstream.is_http and answer.error.code in WITHOUT_ANSWER:
                return self._unknown(answer.error.message)
            await self._report("failed", _short(f"{answer.error.code}: {answer.error.message}"))
            return answer
        if answer.result.get("isError") is True:
            await self._report("failed", _short(_text_in(answer.result)))
        else:
            await self._report("made", digest_of(content_of(answer.result)))
        return answer.result

    async def _beating(self) -> None:
        """Extend the time of the call until it is over, or the call has ended."""
        while True:
            await anyio.sleep(self._place.settings.silence_s / 3)
            try:
                if not await self._extended():
                    return
            except RealmError as error:
                if error.is_final:
                    return  # its time is over, which is recorded

    async def _extended(self) -> bool:
        """Extend the time of the call, and return whether it still counts as being made.

        Raises:
            RealmError: the realm could not be asked, or the time was over.
        """
        asked_at = anyio.current_time()
        answer = await self._place.realm.send(continues(self._named))
        if answer.get("isBeingMade") is not True:
            return False
        self._extended_at = asked_at
        return True

    async def _report(self, outcome: Outcome, detail: Any) -> None:
        """Record the outcome; where the realm cannot be reached for a time, the call will be in doubt."""
        with anyio.move_on_after(REPORT_S):
            while True:
                try:
                    await self._place.realm.send(ends(self._named, outcome, detail))
                except RealmError as error:
                    if error.is_final:
                        return
                    await anyio.sleep(RETRY_S)
                    continue
                return

    def _unknown(self, why: str) -> Result:
        return refusal(
            f"It is not known whether this call was made: {_short(why).rstrip('.')}. It is recorded as in doubt "
            f"(proposal {self._proposal}), and is not made again until a person says what became of it, unless the "
            "pinned annotations of the tool permit it. Find out what happened before anything else.",
            {"code": "IN_DOUBT", "proposalId": self._proposal},
        )


def refusal(words: str, details: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the result of a call that was not made, or about which nothing is known.

    Args:
        words: for the model.
        details: the decision; its proposal and code are for programs.
    """
    told = {name: details[name] for name in ("proposalId", "code") if name in details} if details else {}
    meta = {"_meta": {"worldprotocol/call": told}} if told else {}
    return {"content": [{"type": "text", "text": words}], "isError": True, **meta}


async def _is_acquired(turn: anyio.Lock, wait_s: float) -> bool:
    try:
        turn.acquire_nowait()
    except anyio.WouldBlock:
        with anyio.move_on_after(wait_s):
            await turn.acquire()
            return True
        return False
    return True


def _text_in(result: Mapping[str, Any]) -> str:
    content = result.get("content")
    blocks = content if isinstance(content, list) else []
    texts = [one["text"] for one in blocks if isinstance(one, dict) and isinstance(one.get("text"), str)]
    return " ".join(texts) or "The tool stated no reason."


def _short(text: str) -> str:
    """Return the beginning of a text in which control characters cannot be seen as something else."""
    return "".join(one if one.isprintable() else " " for one in text[:MAX_DETAIL])
