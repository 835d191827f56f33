"""A realm on this machine that the MCP server uses as an actor; nothing verifies the actor, as on the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from projections.catalog import ActionCatalog
from world.clock import SystemClock
from world.error_codes import ErrorCode
from world.errors import RefusedError, WaitTimeoutError
from world.events.verification import RIGHTS
from world.model.intent import IntentBody
from world.model.record import to_wire
from world.read_models.leases import held, verdict_row
from world.read_models.lineage import Heads
from world.state.proposal import Proposal
from worldprotocol.agents.mcp.realm_access import PAGE, SUBMITTED_S, McpActor
from worldprotocol.api.asynchronous.realm import AsyncRealm
from worldprotocol.api.callers.keyed import caller_of, proposal_of_intent, submit_once
from worldprotocol.api.callers.request_keys import keyed, once
from worldprotocol.api.lookup.lineage_rows import LineageQuery, branch_rows, lineage_row, lineage_rows, sealed_row
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import waiting_entry
from worldprotocol.api.waiting.waiting_words import with_waits

__all__ = ["LocalRealm"]

R = TypeVar("R")

HEAD: Final = "HEAD"
"""Name of the head of the active branch."""


class LocalRealm:
    """An open realm, used as one of its actors.

    Args:
        realm: the realm, open for acting; its owner closes it.
        actor_id: the actor.
    """

    def __init__(self, realm: AsyncRealm, actor_id: str) -> None:
        self.inbox_url: str | None = None  # only a server has pages
        self._async = realm
        self._realm = realm._sync
        self._actor_id = actor_id
        self._clock = SystemClock()
        self._running: set[asyncio.Future[Proposal]] = set()

    async def identity(self) -> McpActor:
        """Return the actor, who has all rights on a log of this machine.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``.
        """
        await asyncio.to_thread(self._realm.actions.actor, self._actor_id)
        return McpActor(self._realm.log.address.name, self._actor_id, frozenset(RIGHTS))

    async def position(self) -> int:
        """Return the position of the last event."""
        return (await asyncio.to_thread(self._realm.log.head)).size

    async def catalog(self) -> ActionCatalog:
        """Return all actions of the domain with their availability to the actor."""
        return await self._async.actions.catalog(self._actor_id, mode="debug", pruning={"policy": "mark_only"})

    # Proposals

    async def submit(self, body: IntentBody, key: str | None, trace: Mapping[str, Any]) -> dict[str, Any]:
        """Submit an intent, or return the open, undecided proposal of the same meaning; see ``RealmPort``."""
        intent = await asyncio.to_thread(self._realm.issue, self._actor_id, body.type, body.input)
        said = {"type": body.type, "input": body.input}
        caller = None if key is None else keyed(caller_of(self._realm, self._actor_id), key, "intents.submit", said)

        def run() -> Proposal:
            return submit_once(self._realm, caller, intent, continues=True, trace=trace)

        running = asyncio.ensure_future(asyncio.to_thread(run))
        self._running.add(running)
        running.add_done_callback(self._ended)
        await asyncio.wait([running], timeout=SUBMITTED_S)
        if not running.done():
            found = await asyncio.to_thread(proposal_of_intent, self._realm, intent.intent_id)
            if found is not None:
                return found.to_wire()
        return (await asyncio.shield(running)).to_wire()

    def _ended(self, submission: asyncio.Future[Proposal]) -> None:
        """Forget a submission; what became of it is in the log."""
        self._running.discard(submission)
        _ = submission.cancelled() or submission.exception()

    async def proposal(self, proposal_id: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a proposal once it has ended, or after a time; see ``RealmPort``."""
        if wait_s > 0:
            with suppress(WaitTimeoutError):
                await self._async.wait(proposal_id, wait_s)
        return await asyncio.to_thread(lambda: with_waits(self._realm, self._realm.proposal(proposal_id)))

    async def withdraw(self, proposal_id: str, reason: str) -> dict[str, Any]:
        """Withdraw an undecided proposal of the actor.

        Raises:
            RefusedError: ``NOT_RUNNING`` where it is decided, or has ended.
        """
        proposal = await asyncio.to_thread(self._realm.proposal, proposal_id)
        if proposal.status not in ("submitted", "evaluating"):
            raise RefusedError(
                ErrorCode.NOT_RUNNING,
                f"{proposal_id} is {proposal.status}, and only undecided proposals are withdrawn; an operator cancels "
                "an execution.",
            )
        return (await self._async.host.cancel(proposal_id, by=self._actor_id, reason=reason)).to_wire()

    # Reading

    async def patches(self, world_id: str) -> Sequence[Any]:
        """Return the patches from the parent of a world, JSON."""
        return [to_wire(one) for one in (await self._async.sealed(world_id)).patches]

    async def inbox(self) -> Any:
        """Return what waits for the actor."""

        def run() -> dict[str, Any]:
            is_human = self._realm.actions.actor(self._actor_id).kind == "human"
            names = {self._actor_id, "*"} if is_human else {self._actor_id}
            asked = [one for one in self._realm.inbox() if one.asked is not None and names & set(one.asked.ask)]
            now = self._clock.now_ms()
            return {"inbox": [waiting_entry(one, now) for one in asked[:PAGE]], "more": len(asked) > PAGE}

        return await asyncio.to_thread(run)

    async def worlds(self) -> Any:
        """Return the newest worlds, each with the branches whose head or tip it is."""

        def run() -> dict[str, Any]:
            heads = self._heads()
            rows = lineage_rows(self._realm.archive, heads, LineageQuery(PAGE))
            return {"worlds": [lineage_row(row, heads) for row in rows]}

        return await asyncio.to_thread(run)

    async def world(self, world_id: str) -> Any:
        """Return a world with its patches."""
        archive = self._realm.archive
        return await asyncio.to_thread(lambda: sealed_row(archive, archive.world(self._named(world_id))))

    async def state(self, world_id: str) -> Any:
        """Return the data of a world."""

        def run() -> dict[str, Any]:
            name = self._named(world_id)
            return {"worldId": name, "value": self._realm.data(name)}

        return await asyncio.to_thread(run)

    async def branches(self) -> Any:
        """Return the branches."""
        return await asyncio.to_thread(lambda: {"branches": branch_rows(self._heads())})

    def _named(self, world_id: str) -> str:
        return self._realm.branch().head if world_id == HEAD else world_id

    def _heads(self) -> Heads:
        view = self._realm.realm()
        return Heads(view.active, dict(view.branches))

    # Leases

    async def leases(self, *, own: bool) -> Any:
        """Return the leases in force; ``own`` are those of the actor alone."""
        agent = self._actor_id if own else None

        def run() -> dict[str, Any]:
            return {"leases": held(self._realm.realm().klis, now=self._clock.now_ms(), agent=agent)}

        return await asyncio.to_thread(run)

    async def acquire(self, wanted: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        """Request leases for the actor, all or none; see ``RealmPort``."""
        session = wanted.get("sessionId") or self._realm.new_id()
        manifest = {
            "ver": "1.0",
            "agent_id": self._actor_id,
            "session_id": session,
            "scope": [{"predicate": wanted["predicate"], "resource": one} for one in wanted["resources"]],
        }

        def run(realm: Realm) -> dict[str, Any]:
            verdict = realm.leases.desk.request(manifest, by=self._actor_id, ttl_ms=wanted.get("ttlMs"))
            return verdict_row(verdict)

        return await self._once(key, "leases.acquire", wanted, run, again=lambda events: verdict_row(events[0]))

    async def release(self, lease_ids: Sequence[str], session_id: str, key: str | None) -> dict[str, str]:
        """Release leases of the actor, all or none, and return the state of each."""

        def run(realm: Realm) -> dict[str, str]:
            return realm.leases.desk.release(lease_ids, agent_id=self._actor_id, session_id=session_id)

        said = {"leaseIds": list(lease_ids), "sessionId": session_id}
        return await self._once(key, "leases.release", said, run, again=lambda _: dict.fromkeys(lease_ids, "Released"))

    async def _once(
        self,
        key: str | None,
        name: str,
        said: Mapping[str, Any],
        run: Callable[[Realm], R],
        *,
        again: Callable[[Sequence[Any]], R],
    ) -> R:
        """Run a command of the actor in a thread, and that of a repeated call with its key once."""
        if key is None:
            return await asyncio.to_thread(run, self._realm)
        caller = keyed(caller_of(self._realm, self._actor_id), key, name, said)
        return await asyncio.to_thread(lambda: once(self._realm, caller, run, again=again))
