"""The live state of one log in a process: one state to apply events to, and the view that readers share.

A unit of work applies its own events to the state while it emits them; its commit publishes a new immutable view
(``world.state.realm_view``). What other processes committed is applied once: by a unit, under the log's lock, or by the
first reader that finds the log longer than the view. Nothing that this process commits is read back.

A reader uses the newest view without a lock. While a unit holds the log's lock, no other process can commit, so the
view is current until the unit commits; code that runs inside a unit, in whichever thread, sees the committed state and
never waits for the unit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final, cast

from world.events.base import Event
from world.events.execution_events import EffectDropped
from world.events.realm_events import LogArchived
from world.log import EventLog, LoggedEvent, Transaction
from world.read_models.decoding import known
from world.state.catch_up import apply_others
from world.state.proposal import Proposal
from world.state.realm_state import RealmState
from world.state.realm_view import RealmView, publish, state_of_view, view_of

if TYPE_CHECKING:
    from world.model.immutable.persistent_map import TrackedDict

__all__ = ["LiveState"]

FOLD_AT_MOST: Final = 10_000
"""Maximum number of events by which a state is updated; one further behind is loaded again."""

KEPT_ENDED: Final = 64
"""Number of recently ended proposals that are kept."""


class LiveState:
    """The state of one log in this process; safe to use from many threads.

    Args:
        log: the log.
        load: returns the state as of the last commit, from storage.
        on_publish: called with the events of each publication, before readers see it.
        on_load: called when a loaded state replaces the present one, so that events between them were not published.
        on_others: called after the publication of what other processes committed.
    """

    def __init__(
        self,
        log: EventLog,
        load: Callable[[], RealmState],
        on_publish: Callable[[Sequence[Event]], None],
        on_load: Callable[[], None] = lambda: None,
        on_others: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a holder that loads the state when it is first requested."""
        self._log = log
        self._load = load
        self._on_publish = on_publish
        self._on_load = on_load
        self._on_others = on_others
        self._view: RealmView | None = None
        self._state: RealmState | None = None  # None: made again from the view
        self._turn = threading.Condition()
        self._owner: int | None = None  # the thread that may change the state
        self._following = threading.Lock()  # one reader at a time fetches what others committed
        self._is_current = False  # a unit holds the log's lock, and has committed nothing yet
        self._ended: OrderedDict[str, Proposal] = OrderedDict()
        self.recorded_ms: int | None = None
        """Time of the newest event of the view, ms since 1970; None where it was not read."""

    # Readers

    def view(self) -> RealmView:
        """Return the state as of the last commit of any process.

        Raises:
            DamagedLogError: the log or its index is damaged.
            RefusedError: ``LOG_CLOSED``.
        """
        if self._is_current and self._view is not None:
            return self._view
        size = self._log.head().size
        view = self._view
        return view if view is not None and view.position >= size else self._followed(size)

    @property
    def published(self) -> RealmView | None:
        """The state that was published last, without a look at the log; None before the first one."""
        return self._view

    @property
    def due(self) -> int | None:
        """When something may be due next in the published state, ms since 1970; None when nothing waits for a time."""
        return None if self._view is None else self._view.due

    def ended(self, proposal_id: str) -> Proposal | None:
        """Return a proposal that ended lately, None where it is not kept; it must not be changed."""
        return self._ended.get(proposal_id)

    def _followed(self, size: int) -> RealmView:
        """Apply what other processes committed, up to a number of events at least."""
        while True:
            with self._turn:  # events that this process commits are published before their owner leaves
                while self._owner not in (None, threading.get_ident()) and not self._reaches(size):
                    self._turn.wait()
                if self._view is not None and (self._reaches(size) or self._owner is not None):
                    return self._view
            with self._following:
                if not self._reaches(size) and self._owner is None:
                    self._follow(size)

    def _reaches(self, size: int) -> bool:
        return self._view is not None and self._view.position >= size

    def _follow(self, size: int) -> None:
        """Fetch the events up to a number without blocking a unit, then apply those that are not applied yet."""
        view = self._view
        if view is None or size - view.position > FOLD_AT_MOST:
            loaded = self._load()
            with self._owning():
                if not self._reaches(loaded.position):
                    self._on_load()
                    self._state, self._view, self.recorded_ms = loaded, view_of(loaded), None
            return
        fetched = list(self._log.read(view.position, size))
        with self._owning():
            self._apply(self._taken(), fetched)
        assert self._reaches(size), "the state has events that were not committed"

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Own the state, and give up a state that an exception left half changed."""
        with self._turn:
            while self._owner is not None:
                self._turn.wait()
            self._owner = threading.get_ident()
        try:
            yield
        except BaseException:
            self._drop_state()
            raise
        finally:
            self._is_current = False
            with self._turn:
                self._owner = None
                self._turn.notify_all()

    def _drop_state(self) -> None:
        """Drop a state that holds what was not committed; it is made again from the view."""
        self._state = None

    def _taken(self) -> RealmState:
        """Return the state to apply events to."""
        if self._state is None:
            assert self._view is not None
            self._state = state_of_view(self._view)
        return self._state

    def _apply(self, state: RealmState, logged: Sequence[LoggedEvent]) -> None:
        """Apply events of other processes and publish them."""
        new = [one for one in logged if one.position > state.position]
        if not new:
            return
        self._publish(state, apply_others(state, new, known))
        self._on_others()

    def _publish(self, state: RealmState, events: Sequence[Event]) -> None:
        for event in events:
            if type(event) is EffectDropped:
                self._ended.pop(event.proposal_id, None)
            elif type(event) is LogArchived:
                self._ended.clear()  # contents of archived proposals are refused, whatever this process has seen
        for name, proposal in cast("TrackedDict[str, Proposal]", state.proposals).gone.items():
            self._ended[name] = proposal
        while len(self._ended) > KEPT_ENDED:
            self._ended.popitem(last=False)
        self._on_publish(events)
        view = publish(state, self._view)
        with self._turn:
            self._view = view
            if events:
                self.recorded_ms = events[-1].at
            self._turn.notify_all()

    # The writer

    def prepare(self) -> None:
        """Have the state ready before the log's lock is taken, so that loading it blocks no other process."""
        if self._view is None:
            self.view()
        if self._state is None:
            with self._owning():
                self._taken()

    @contextmanager
    def unit(self) -> Iterator[LiveUnit]:
        """Let one unit of work change the state, and publish it when the block ends; an exception gives it up.

        The block takes the log's lock, calls ``LiveUnit.begin`` under it and ``LiveUnit.committing`` before the commit.
        """
        unit = LiveUnit(self)
        with ExitStack() as owned:
            unit.owned = owned
            yield unit
            state, view = unit.state, self._view
            if state is not None and (unit.events or view is None or state.next_due() != view.due):
                self._publish(state, unit.events)


class LiveUnit:
    """The live state in one unit of work; ``begin`` takes it over until the stack ``owned`` ends."""

    __slots__ = ("_live", "events", "owned", "state")

    def __init__(self, live: LiveState) -> None:
        """Create the unit."""
        self._live = live
        self.owned = ExitStack()
        self.state: RealmState | None = None
        self.events: Sequence[Event] = ()

    def begin(self, transaction: Transaction) -> RealmState:
        """Return the state under the log's lock, with what other processes committed, which is published at once."""
        live = self._live
        self.owned.enter_context(live._owning())
        state = self.state = live._taken()
        live._apply(state, transaction.new_events(state.position))
        live._is_current = True
        return state

    def committing(self, events: Sequence[Event]) -> None:
        """Note that events are committed now: readers look for them again, and wait until they are published."""
        self.events = events
        self._live._is_current = False
