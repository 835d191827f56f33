"""``Bridge``: two-way binding of a program to one branch, for one actor (intent specification 15).

::

    bridge = Bridge(world, "ann")
    unsubscribe = bridge.subscribe(lambda view: draw(view.data))
    bridge.dispatch({"type": "todo.add", "input": {"title": "tea"}})

What happened comes out as views, what is wanted goes in as intent bodies; the bridge issues them, so the World receives
instances. Whoever is told of a change cannot make one from within: that is scheduled, and done afterwards. One who is
told and raises disturbs nobody. Without a projector of catalogs every action counts as available.

For programs that act; in asyncio ``dispatch_async``, ``set_async``, ``project_action_catalog_async`` and ``views``.
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


class _Watched:
    """Where the heads of the branches are, as far as somebody was told."""

    def __init__(self, archive: Archive, branch: str | None) -> None:
        self._archive = archive
        self._branch = branch
        self._now: tuple[str | None, dict[str, str]] | None = None

    def begin(self) -> tuple[str | None, dict[str, str]]:
        """Return the active branch and the heads, first of all as they are now."""
        if self._now is None:
            self._now = self._archive.peek(
                lambda realm: (realm.active, {one.name: one.head for one in realm.branches.values()})
            )
        return self._now

    def moved_to(self, event: Event) -> str | None:
        """Take in an event and return the world to which it moved the branch; None for any other event."""
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
    """One actor's view of one branch, and its way to change it; many threads may use it.

    Args:
        world: a realm open for acting.
        actor_id: who acts through it.
        projector: what makes catalogs; None is the schema's list with everything available (INT-15.5).
        branch: the branch; None is the active one, whichever that is at the time.

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
        """Tell nobody any more; the world stays open."""
        while self._ends:
            self._ends.pop()()

    # What is

    def view(self) -> SnapshotView:
        """Return data and computed values of the branch's head, frozen."""
        return self._view_of(*self._actions.place(self._branch))

    def get(self, path: str) -> Any:
        """Return what stands at a path now, None where nothing does.

        Args:
            path: into the data (``todos.0.title``; a leading ``data.`` may stand there), or ``computed.NAME``.

        Raises:
            RefusedError: ``INVALID_PATH`` for a path that leads elsewhere, and for what is none.
        """
        if not isinstance(path, str):
            raise RefusedError("INVALID_PATH", f"A path is a text, such as todos.0.title, not {path!r:.80}.")
        view = self.view()
        root, _, rest = path.partition(".")
        if root == "data" and "data" not in view.data:
            if not rest:
                return view.data
            path = rest
        if not path or path.partition(".")[0] in _ELSEWHERE or path.startswith("$"):
            raise RefusedError("INVALID_PATH", f"A bridge reads the data and computed values; {path!r:.80} is neither.")
        return compile_expression({"kind": "get", "path": path})(Scope(view.data, computed=view.computed))

    def subscribe(self, callback: Callback) -> Unsubscribe:
        """Tell a callback the new view whenever the branch's head moves, and return what ends that.

        Views come in the order of the log, after the commit: those of this process in the thread that committed, or in
        one that was telling at the moment; those of other processes soon after, in a thread of the World's own. Only
        one callback is told at a time. From inside of it a callback cannot act (``CALL_FROM_HANDLER``); it may read,
        and ``schedule`` what is to be done afterwards. What it raises is logged and disturbs nobody.
        """
        watched = _Watched(self._world.archive, self._branch)

        def told(_position: int, event: Event, _schedule: Schedule) -> None:
            head = watched.moved_to(event)
            if head is None:
                return
            schema_hash = self._actions.place(at=None if isinstance(event, BranchSwitched) else head)[1]
            callback(self._view_of(head, schema_hash))

        end = self._world.subscribe(told)
        watched.begin()  # afterwards: what happens in between is told
        self._ends.append(end)

        def unsubscribe() -> None:
            end()
            if end in self._ends:
                self._ends.remove(end)

        return unsubscribe

    def schedule(self, reaction: Reaction) -> None:
        """Have something done as soon as everybody was told; where nobody is being told, it is done at once."""
        self._world.schedule(reaction)

    async def views(self) -> AsyncGenerator[SnapshotView, None]:
        """Yield the new view whenever the branch's head moves, from when the iteration begins; see ``subscribe``."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Queue[SnapshotView]()
        unsubscribe = self.subscribe(lambda view: loop.call_soon_threadsafe(arrived.put_nowait, view))
        try:
            while True:
                yield await arrived.get()
        finally:
            unsubscribe()

    # What is wanted

    def dispatch(self, body: IntentBody | Mapping[str, Any], *, note: str | None = None) -> Proposal:
        """Issue an intent and submit it (15.3).

        Args:
            body: ``{"type", "input"?, "scopeProposal"?}``.
            note: for people.

        Returns:
            The proposal, as far as it went.

        Raises:
            RefusedError: ``INVALID_VALUE``, and see ``Realm.submit``.
        """
        wanted = body if isinstance(body, IntentBody) else IntentBody.read(body)
        scope = wanted.scope_proposal
        return self._world.act(self._actor_id, wanted.type, wanted.input, scope=scope, note=note, branch=self._branch)

    def set(self, path: str, value: Any) -> Proposal:
        """Dispatch ``field.set`` with ``{path, value}``, an action that the schema may have (15.4).

        Raises:
            RefusedError: ``UNKNOWN_ACTION`` where it has none, and as ``dispatch``.
        """
        return self.dispatch({"type": "field.set", "input": {"path": path, "value": value}})

    async def dispatch_async(self, body: IntentBody | Mapping[str, Any], *, note: str | None = None) -> Proposal:
        """Dispatch without blocking the loop; to cancel the task does not take the intent back."""
        return await asyncio.to_thread(self.dispatch, body, note=note)

    async def set_async(self, path: str, value: Any) -> Proposal:
        """Set without blocking the loop; see ``set`` and ``dispatch_async``."""
        return await asyncio.to_thread(self.set, path, value)

    # What may be wanted

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
        """Return the actions that are offered in the present state; it never fails for want of a projector (INT-15.5).

        Args:
            req: a request of the caller's own; None is this actor on this branch.
            mode: for whom it is shown.
            pruning: what is left out.

        Raises:
            RefusedError: ``INVALID_VALUE`` for a mode or pruning options that do not exist.
        """
        asked = req or self._actions.request(self._actor_id, mode=mode, pruning=pruning, branch=self._branch)
        if self._projector is None:
            return static_catalog(asked)
        try:
            return self._projector.project_action_catalog(asked)
        except Exception:  # a runtime without its catalog goes on with all actions
            _LOGGER.exception("the catalog projector failed; every action counts as available")
            return static_catalog(asked)

    # Inside

    def _view_of(self, world_id: str, schema_hash: str) -> SnapshotView:
        latest, where = self._latest, (world_id, schema_hash)
        if latest is None or latest[0] != where:
            latest = self._latest = (where, self._actions.view(world_id, schema_hash))
        return latest[1]


_ELSEWHERE: Final = frozenset({"input", "meta", "system"})
"""Where expressions may look and a bridge does not (INT-10.2)."""
