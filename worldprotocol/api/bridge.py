"""``Bridge``: binding of a program to one branch, for one actor.

::

    bridge = Bridge(world, "ann")
    unsubscribe = bridge.subscribe(lambda view: draw(view.data))
    bridge.dispatch({"type": "todo.add", "input": {"title": "tea"}})

Source: intent specification 15. Changes of the branch are delivered as views; the bridge issues intent bodies and
submits the instances. A callback cannot act while it is called: it schedules a reaction, which runs afterwards. An
exception in a callback does not affect other callbacks. Without a catalog projector every action counts as available.

The methods for asyncio are ``dispatch_async``, ``set_async``, ``project_action_catalog_async`` and ``views``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self

from projections.catalog import (
    ActionCatalog,
    ActionCatalogProjector,
    CatalogRequest,
    Mode,
    Pruning,
    static_catalog,
)
from world.core import Scope, compile_expression
from world.engine.event_bus import Reaction, Schedule
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.proposal_events import ProposalCompleted
from world.events.realm_events import BranchCreated, BranchSwitched
from world.model.intent import IntentBody
from world.model.snapshot import SnapshotView
from world.read_models.archive import Archive
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm

__all__ = ["Bridge"]

Callback = Callable[[SnapshotView], object]
Unsubscribe = Callable[[], None]

_LOGGER: Final = logging.getLogger("worldprotocol.api.bridge")


class _BranchHeads:
    """Heads of the branches according to the events delivered so far."""

    def __init__(self, archive: Archive, branch: str | None) -> None:
        self._archive = archive
        self._branch = branch
        self._now: tuple[str | None, dict[str, str]] | None = None

    def begin(self) -> tuple[str | None, dict[str, str]]:
        """Return the active branch and the heads; the first call reads the current ones."""
        if self._now is None:
            self._now = self._archive.peek(
                lambda realm: (realm.active, {one.name: one.head for one in realm.branches.values()})
            )
        return self._now

    def moved_to(self, event: Event) -> str | None:
        """Apply an event; return the world to which it moved the branch, or None."""
        active, heads = self.begin()
        if isinstance(event, BranchCreated):
            heads[event.branch] = event.world_id
        elif isinstance(event, ProposalCompleted):
            heads[event.branch] = event.world_id
            return event.world_id if event.branch == (self._branch or active) else None
        elif isinstance(event, BranchSwitched):
            self._now = event.branch, heads
            return heads[event.branch] if self._branch is None else None
        return None


class Bridge:
    """One actor's view of one branch, and commands to change it; thread-safe.

    Args:
        world: a realm open for acting.
        actor_id: the acting actor.
        projector: projector of catalogs; None is the schema's list with every action available (INT-15.5).
        branch: the branch; None is the branch that is active at the time of each call.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR``, ``UNKNOWN_BRANCH``.
    """

    def __init__(
        self,
        world: Realm,
        actor_id: str,
        projector: ActionCatalogProjector | None = None,
        *,
        branch: str | None = None,
    ) -> None:
        """Bind to a branch."""
        self._world = world
        self._actor_id = actor_id
        self._projector = projector
        self._branch = branch
        self._actions = world.actions
        self._ends: list[Unsubscribe] = []
        self._latest: tuple[tuple[str, str], SnapshotView] | None = None
        self._actions.actor(actor_id)
        self._actions.place(branch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all subscriptions; the realm stays open."""
        while self._ends:
            self._ends.pop()()

    # Reading

    def view(self) -> SnapshotView:
        """Return data and computed values of the branch's head, frozen."""
        return self._view_of(*self._actions.place(self._branch))

    def get(self, path: str) -> Any:
        """Return the current value at a path; None if there is no value.

        Args:
            path: a path in the data (``todos.0.title``, with or without a leading ``data.``), or ``computed.NAME``.

        Raises:
            RefusedError: ``INVALID_PATH`` for a path outside of these, or an invalid one.
        """
        if not isinstance(path, str):
            raise RefusedError(
                ErrorCode.INVALID_PATH, f"A path must be a string such as todos.0.title, not {path!r:.80}."
            )
        view = self.view()
        root, _, rest = path.partition(".")
        if root == "data" and "data" not in view.data:
            if not rest:
                return view.data
            path = rest
        if not path or path.partition(".")[0] in _ELSEWHERE or path.startswith("$"):
            raise RefusedError(
                ErrorCode.INVALID_PATH,
                f"{path!r:.80} is outside the data and the computed values; a bridge reads only these.",
            )
        return compile_expression({"kind": "get", "path": path})(Scope(view.data, computed=view.computed))

    def subscribe(self, callback: Callback) -> Unsubscribe:
        """Call a callback with the new view whenever the branch's head moves.

        Views are delivered in the order of the log, after the commit: those of this process in the committing thread or
        in one that is delivering at that moment; those of other processes soon after, in a thread of the realm. One
        callback is called at a time. A callback cannot act (``CALL_FROM_HANDLER``); it may read, and ``schedule`` work
        to be done afterwards. An exception that it raises is logged.

        Returns:
            A function that ends the subscription.
        """
        watched = _BranchHeads(self._world.archive, self._branch)

        def handle(_position: int, event: Event, _schedule: Schedule) -> None:
            head = watched.moved_to(event)
            if head is None:
                return
            schema_hash = self._actions.place(at=None if isinstance(event, BranchSwitched) else head)[1]
            callback(self._view_of(head, schema_hash))

        end = self._world.subscribe(handle)
        watched.begin()  # after subscribing, so that no event in between is missed
        self._ends.append(end)

        def unsubscribe() -> None:
            end()
            if end in self._ends:
                self._ends.remove(end)

        return unsubscribe

    def schedule(self, reaction: Reaction) -> None:
        """Run a reaction after the current callbacks, or at once outside of them."""
        self._world.schedule(reaction)

    async def views(self) -> AsyncGenerator[SnapshotView, None]:
        """Yield the new view whenever the branch's head moves; see ``subscribe``."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[SnapshotView]()
        unsubscribe = self.subscribe(lambda view: loop.call_soon_threadsafe(arrived.put_nowait, view))
        try:
            while True:
                yield await arrived.get()
        finally:
            unsubscribe()

    # Acting

    def dispatch(self, body: IntentBody | Mapping[str, Any], *, note: str | None = None) -> Proposal:
        """Issue an intent and submit it (15.3).

        Args:
            body: ``{"type", "input"?, "scopeProposal"?}``.
            note: free text, stored with the intent.

        Returns:
            The proposal in its current state.

        Raises:
            RefusedError: ``INVALID_VALUE``, and see ``Realm.submit``.
        """
        parsed = body if isinstance(body, IntentBody) else IntentBody.read(body)
        scope = parsed.scope_proposal
        return self._world.act(self._actor_id, parsed.type, parsed.input, scope=scope, note=note, branch=self._branch)

    def set(self, path: str, value: Any) -> Proposal:
        """Dispatch the action ``field.set`` with ``{path, value}`` (15.4).

        Raises:
            RefusedError: ``UNKNOWN_ACTION`` if the schema has no such action, and as ``dispatch``.
        """
        return self.dispatch({"type": "field.set", "input": {"path": path, "value": value}})

    async def dispatch_async(self, body: IntentBody | Mapping[str, Any], *, note: str | None = None) -> Proposal:
        """Dispatch without blocking the loop; cancelling the task does not undo the intent."""
        return await asyncio.to_thread(self.dispatch, body, note=note)

    async def set_async(self, path: str, value: Any) -> Proposal:
        """Set without blocking the loop; see ``set`` and ``dispatch_async``."""
        return await asyncio.to_thread(self.set, path, value)

    # Catalogs

    async def project_action_catalog_async(
        self,
        req: CatalogRequest | None = None,
        *,
        mode: Mode = "llm",
        pruning: Pruning | Mapping[str, Any] | None = None,
    ) -> ActionCatalog:
        """Project without blocking the loop; see ``project_action_catalog``."""
        return await asyncio.to_thread(self.project_action_catalog, req, mode=mode, pruning=pruning)

    def project_action_catalog(
        self,
        req: CatalogRequest | None = None,
        *,
        mode: Mode = "llm",
        pruning: Pruning | Mapping[str, Any] | None = None,
    ) -> ActionCatalog:
        """Return the actions available in the current state (INT-15.5).

        Args:
            req: a request; None is this actor on this branch.
            mode: kind of reader.
            pruning: omitted parts.

        Raises:
            RefusedError: ``INVALID_VALUE`` for an unknown mode or pruning option.
        """
        request = req or self._actions.request(self._actor_id, mode=mode, pruning=pruning, branch=self._branch)
        if self._projector is None:
            return static_catalog(request)
        try:
            return self._projector.project_action_catalog(request)
        except Exception:  # without its catalog a program continues with all actions
            _LOGGER.exception("the catalog projector failed; every action counts as available")
            return static_catalog(request)

    # Internals

    def _view_of(self, world_id: str, schema_hash: str) -> SnapshotView:
        latest, where = self._latest, (world_id, schema_hash)
        if latest is None or latest[0] != where:
            latest = self._latest = (where, self._actions.view(world_id, schema_hash))
        return latest[1]


_ELSEWHERE: Final = frozenset({"input", "meta", "system"})
"""Roots that expressions read and a bridge does not (INT-10.2)."""
