"""Persisted views of packages: read models in tables beside the log, kept in the same commit as the events.

A package offers a view (``world.log.PersistedView``) as an entry point of the group ``worldprotocol.views``. Its
stored position is that of the last event it covers. A writer that has the package brings its views up to date when it
opens the log, and applies in each commit what was appended, and what a writer without the package appended before. So
a view that is behind says so by its position, and ``worldctl doctor`` reports it.

A view holds nothing that the events do not say, and never keeps a commit from being made: where its code fails, what it
changed is undone, it stays at its position, and this process applies nothing more to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self

from world.code.references import offered
from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log import EventLog, LoggedEvent, PersistedView, ViewCursor, ViewState
from world.log.sql.queries import statements
from world.log.views import OF_ALL_LOGS, REBUILD_BATCH, Progress, make_tables, stored_states
from world.read_models.live.sealed_snapshot import archived_upto

__all__ = ["ENTRY_POINTS", "PackagedViews"]

ENTRY_POINTS: Final = "worldprotocol.views"
"""The group of entry points by which packages offer views; the name of an entry point is that of its view."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED: Final = re.compile(r"(wp|world|sqlite|pg)_")
_SAVEPOINT: Final = "packaged_view"
_OF_VIEWS: Final = frozenset({"VIEW_CHANGED", "VIEW_FAILED", "VIEW_NEWER"})


class _Transaction(Protocol):
    """The part of a write to the log that views need (``EventLog.write``)."""

    @property
    def head(self) -> Any:
        """The tree head before this write."""

    def new_events(self, after: int) -> list[LoggedEvent]:
        """Return the events after a position up to ``head``."""

    def cursor(self) -> ViewCursor:
        """Return a cursor in this transaction."""


class PackagedViews:
    """The views of packages that one process keeps with one log.

    Args:
        views: those available.
        time_limit: for what one view does in one commit.

    Attributes:
        failed: why nothing more is applied to a view, by its name.

    Raises:
        RefusedError: ``INVALID_VIEW`` for what is no view; ``DUPLICATE_NAME`` where two have one name or table.
    """

    def __init__(self, views: Iterable[PersistedView] = (), *, time_limit: TimeLimit | None = None) -> None:
        self._views = tuple(views)
        self._time_limit = time_limit or TimeLimit()
        self.failed: dict[str, str] = {}
        tables: set[str] = set()
        names: set[str] = set()
        for view in self._views:
            _check(view)
            if view.name in names or tables.intersection(view.metadata.tables):
                raise RefusedError(
                    ErrorCode.DUPLICATE_NAME,
                    f"Several packages offer a view {view.name!r}, or its tables; remove all but one.",
                    view=view.name,
                )
            names.add(view.name)
            tables.update(view.metadata.tables)

    @classmethod
    def installed(cls, *, time_limit: TimeLimit | None = None) -> Self:
        """Return the views that the installed packages offer.

        Raises:
            RefusedError: ``NOT_LOADED``, ``INVALID_VIEW``, ``DUPLICATE_NAME``.
        """
        found = list(offered(ENTRY_POINTS))
        for name, view in found:
            if getattr(view, "name", None) != name:
                raise _invalid(
                    name, f"the entry point is called {name!r}, and its view {getattr(view, 'name', None)!r}"
                )
        return cls([view for _, view in found], time_limit=time_limit)

    @property
    def names(self) -> list[str]:
        """The names of the views."""
        return [view.name for view in self._views]

    def behind(self, log: EventLog) -> Iterator[tuple[str, ViewState | None, bool]]:
        """Yield each view's name, its state in a log (None without one), and whether it covers all events."""
        size = log.head().size
        for view in self._views:
            state = log.view_state(view.name)
            yield view.name, state, state is not None and (state.version, state.position) == (view.version, size)

    def catch_up(self, log: EventLog, progress: Progress | None = None) -> None:
        """Make the tables of the views where they are missing or older, and apply all events they do not cover.

        Args:
            log: open for writing.
            progress: called with events done and events in all, for each view.
        """
        for view in self._views:
            try:
                self._catch_up(log, view, progress)
            except RefusedError as refused:
                self._note(view, refused)

    def rebuild(self, log: EventLog, progress: Progress | None = None) -> None:
        """Drop the tables of all views, make them again and apply all events.

        Other logs of the same store lose their part, which is made again when they are opened next.

        Args:
            log: open for writing.
            progress: as for ``catch_up``.

        Raises:
            RefusedError: ``VIEW_FAILED`` where the code of a view fails, and where contents of events were removed from
                the log; nothing of the view was dropped then.
        """
        for view in self._views:
            _refuse_cut(log, view, 0)
            with log.write() as transaction, _guarded(view, transaction.cursor()) as cursor:
                make_tables(cursor, view, replaces=True)
            self._catch_up(log, view, progress)
            self.failed.pop(view.name, None)

    def apply(self, transaction: _Transaction, logged: Sequence[LoggedEvent]) -> None:
        """Bring the views from before this write to after it; called under the log's lock, within its commit.

        Args:
            transaction: the write.
            logged: what it appends.
        """
        for view in self._views:
            if view.name in self.failed:
                continue
            try:
                with _guarded(view, transaction.cursor()) as cursor:
                    self._time_limit.run(lambda: _follow(cursor, view, transaction, logged))  # noqa: B023 - called here
            except RefusedError as refused:
                self._note(view, refused)

    def _note(self, view: PersistedView, refused: RefusedError) -> None:
        if refused.code not in _OF_VIEWS:
            raise refused
        self.failed[view.name] = refused.message

    def _catch_up(self, log: EventLog, view: PersistedView, progress: Progress | None) -> None:
        size = log.head().size
        state = log.view_state(view.name)
        if state is not None and (state.version, state.position) == (view.version, size):
            return
        if state is None or state.version <= view.version:
            covered = 0 if state is None or state.version < view.version else state.position or 0
            _refuse_cut(log, view, covered)
        with log.write() as transaction, _guarded(view, transaction.cursor()) as cursor:
            position = _prepare(cursor, view)
        while position < size:
            upto = min(position + REBUILD_BATCH, size)
            events = list(log.read(position, upto))
            with log.write() as transaction, _guarded(view, transaction.cursor()) as cursor:
                if _position(cursor, view) != position:  # another process does the same
                    return
                if position == 0:
                    view.clear(cursor)
                view.apply(cursor, events)
                _set_position(cursor, view, upto)
            position = upto
            if progress is not None:
                progress(upto, size)


def _refuse_cut(log: EventLog, view: PersistedView, covered: int) -> None:
    """Refuse to make what a view lacks from events whose contents were removed, before anything is dropped.

    Raises:
        RefusedError: ``VIEW_FAILED``.
    """
    upto = archived_upto(log)
    if covered < upto:
        raise RefusedError(
            ErrorCode.VIEW_FAILED,
            f"The view {view.name} covers the first {covered} events, and the contents of events up to {upto} were "
            "removed from this log. It stays as it is: give the contents back with `worldctl cut --undo ARCHIVE...`, "
            "open the log with the view, and cut it again.",
            view=view.name,
            covered=covered,
            upto=upto,
        )


def _follow(cursor: ViewCursor, view: PersistedView, transaction: _Transaction, logged: Sequence[LoggedEvent]) -> None:
    """Apply what a view lacks: events of writers without the package first, then those of this write."""
    position, size = _position(cursor, view), transaction.head.size
    if position is None:
        raise RefusedError(
            ErrorCode.VIEW_CHANGED, f"Another release replaced the view {view.name}; open the log again."
        )
    if position == 0:
        view.clear(cursor)
    if position < size:
        view.apply(cursor, transaction.new_events(position))
    view.apply(cursor, logged)
    _set_position(cursor, view, size + len(logged))


@contextmanager
def _guarded(view: PersistedView, cursor: ViewCursor) -> Iterator[ViewCursor]:
    """Undo what a block changed when it fails, and only that.

    Raises:
        RefusedError: ``VIEW_FAILED`` with what the view's code raised.
    """
    cursor.execute(f"SAVEPOINT {_SAVEPOINT}")
    try:
        yield cursor
    except BaseException as error:
        cursor.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, RefusedError) and error.code in _OF_VIEWS):
            raise
        raise RefusedError(
            ErrorCode.VIEW_FAILED,
            f"The view {view.name} could not be kept: {type(error).__name__}: {error}. Correct its package, then run "
            "`worldctl doctor --rebuild`.",
            view=view.name,
        ) from error
    finally:
        cursor.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")


def _prepare(cursor: ViewCursor, view: PersistedView) -> int:
    """Make the tables of a view and its records where they are missing or older; return the position it is at."""
    stored, mine = (
        stored_states(cursor, OF_ALL_LOGS).get(view.name),
        stored_states(cursor, cursor.log_id).get(view.name),
    )
    if stored is not None and stored.version > view.version:
        raise RefusedError(
            ErrorCode.VIEW_NEWER,
            f"The view {view.name} of this log has version {stored.version}, and the available package has version "
            f"{view.version}. Update the package.",
            view=view.name,
            found=stored.version,
            known=view.version,
        )
    if stored is None or stored.version < view.version:
        make_tables(cursor, view, replaces=True)
        mine = None
    if mine is None:
        cursor.execute(statements(cursor.backend).insert_view.sql, (cursor.log_id, view.name, view.version, 0))
        return 0
    return mine.position or 0


def _position(cursor: ViewCursor, view: PersistedView) -> int | None:
    """Return the position of the last event that a view covers; None where it is not this view any more."""
    state = stored_states(cursor, cursor.log_id).get(view.name)
    return state.position if state is not None and state.version == view.version else None


def _set_position(cursor: ViewCursor, view: PersistedView, position: int) -> None:
    rendered = {"view_log": cursor.log_id, "view_name": view.name}
    cursor.run(statements(cursor.backend).set_view, **rendered, new_version=view.version, new_position=position)


def _check(view: Any) -> None:
    """Refuse what is no view, and one that could be taken for the log's own.

    Raises:
        RefusedError: ``INVALID_VIEW``.
    """
    from sqlalchemy import MetaData  # which takes long to import, and is needed where a package has a view

    name = getattr(view, "name", None)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _invalid(name, "its name has to be up to 40 lower-case letters, digits and _")
    if type(getattr(view, "version", None)) is not int or view.version < 1:
        raise _invalid(name, "its version has to be an integer from 1")
    if not isinstance(getattr(view, "metadata", None), MetaData) or not view.metadata.tables:
        raise _invalid(name, "its metadata has to hold the SQLAlchemy tables of the view")
    for table in view.metadata.tables.values():
        if _RESERVED.match(table.name) or "log_id" not in table.columns:
            raise _invalid(name, f"its table {table.name} has to have a column log_id, and no name of the log's own")
    if not all(callable(getattr(view, method, None)) for method in ("clear", "apply")):
        raise _invalid(name, "it has to have the methods clear and apply")


def _invalid(name: object, why: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_VIEW, f"The view {name!r:.80} of a package cannot be kept: {why}.", view=str(name)
    )
