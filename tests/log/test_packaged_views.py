"""Views of packages beside a log: what is kept with each commit, made anew and refused."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Column, Integer, MetaData, Table

from tests.log.test_cut_logs import cut_at, grown
from tests.log.test_persisted_views import Counts
from world.audit.sealing import last_commit
from world.errors import RefusedError
from world.log import EventLog, LoggedEvent, NewEvent, ViewCursor, ViewState, open_log
from world.read_models.packaged_views import PackagedViews
from worldprotocol.export.archive.cutting import open_for_cutting


class Failing(Counts):
    """Counts events until one of the stream ``bad`` comes."""

    def apply(self, cursor: ViewCursor, events: Sequence[LoggedEvent]) -> None:
        super().apply(cursor, events)
        if any(event.stream == "bad" for event in events):
            raise ValueError("a bad stream")


def append(log: EventLog, views: PackagedViews, *streams: str) -> None:
    with log.write() as transaction:
        views.apply(transaction, transaction.append(NewEvent(stream, "t", 1, b"{}") for stream in streams))


_numbers = itertools.count()


@pytest.fixture
def view() -> Counts:
    return Failing(f"p{next(_numbers)}")


@pytest.mark.requirement("CARD-log")
def test_a_view_is_kept_with_every_commit_and_brought_up_to_date_where_it_was_not(log_url: str, view: Counts) -> None:
    views = PackagedViews([view])
    with open_log(log_url, create=True) as log:
        append(log, PackagedViews(), "a", "b")
        views.catch_up(log)
        append(log, views, "a")
        assert (view.read(log), log.view_state(view.name)) == ({"a": 2, "b": 1}, ViewState(1, 3))
        append(log, PackagedViews(), "a")
        assert [state for _, state, is_whole in views.behind(log) if not is_whole] == [ViewState(1, 3)]
        append(log, views, "c")
        assert view.read(log) == {"a": 3, "b": 1, "c": 1}
        assert list(views.behind(log)) == [(view.name, ViewState(1, 5), True)]


@pytest.mark.requirement("CARD-log")
def test_what_a_failing_view_changed_is_undone_and_the_commit_is_made(log_url: str, view: Counts) -> None:
    views = PackagedViews([view])
    with open_log(log_url, create=True) as log:
        views.catch_up(log)
        append(log, views, "a")
        append(log, views, "a", "bad")
        append(log, views, "a")
        assert log.head().size == 4
        assert (view.read(log), log.view_state(view.name)) == ({"a": 1}, ViewState(1, 1))
        assert "ValueError: a bad stream" in views.failed[view.name]
        with pytest.raises(RefusedError) as refused:
            views.rebuild(log)
        assert refused.value.code == "VIEW_FAILED"


def test_a_later_version_is_built_anew_and_an_earlier_one_is_left_alone(log_url: str, view: Counts) -> None:
    with open_log(log_url, create=True) as log:
        first, second = (PackagedViews([Counts(view.name, version)]) for version in (1, 2))
        first.catch_up(log)
        append(log, first, "a")
        second.catch_up(log)
        append(log, second, "a")
        append(log, first, "a")
        assert "Another release replaced the view" in first.failed[view.name]
        again = PackagedViews([Counts(view.name, 1)])
        again.catch_up(log)
        assert "Update the package" in again.failed[view.name]
        assert (view.read(log), log.view_state(view.name)) == ({"a": 2}, ViewState(2, 2))


def given(**changed: Any) -> Any:
    metadata = MetaData()
    Table(changed.pop("table", "acme"), metadata, Column(changed.pop("column", "log_id"), Integer))
    view = {"name": "acme", "version": 1, "metadata": metadata, "clear": len, "apply": len}
    return SimpleNamespace(**{**view, **changed})


@pytest.mark.parametrize(
    ("view", "why"),
    [
        (given(name="world.index"), "its name has to be"),
        (given(name=None), "its name has to be"),
        (given(version=0), "its version has to be"),
        (given(version="1"), "its version has to be"),
        (given(metadata=None), "its metadata has to hold"),
        (given(metadata=MetaData()), "its metadata has to hold"),
        (given(table="wp_event"), "its table wp_event has to have"),
        (given(column="id"), "its table acme has to have"),
        (given(apply=None), "the methods clear and apply"),
    ],
)
def test_what_cannot_be_kept_is_refused(view: Any, why: str) -> None:
    with pytest.raises(RefusedError, match=why) as refused:
        PackagedViews([view])
    assert refused.value.code == "INVALID_VIEW"


def test_two_views_of_one_name_or_one_table_are_refused() -> None:
    for other in (given(), given(name="other")):
        with pytest.raises(RefusedError) as refused:
            PackagedViews([given(), other])
        assert refused.value.code == "DUPLICATE_NAME"


@pytest.mark.requirement("CARD-log")
def test_a_cut_log_is_opened_with_a_view_that_cannot_be_made_and_nothing_of_it_is_dropped(tmp_path: Path) -> None:
    address, name = str(tmp_path / "cut.db"), f"p{next(_numbers)}"
    grown(address, 40)
    older, later, new = (
        PackagedViews([Counts(name)]),
        PackagedViews([Counts(name, 2)]),
        PackagedViews([Counts("p_new")]),
    )
    with open_for_cutting(address) as log:
        older.catch_up(log)
        assert cut_at(log, last_commit(log, 200))
        older.catch_up(log)
        counted = Counts(name).read(log)
        assert (older.failed, sum(counted.values())) == ({}, log.head().size)
        for views in (later, new):
            views.catch_up(log)
            [message] = views.failed.values()
            assert "worldctl cut --undo" in message
            with pytest.raises(RefusedError) as refused:
                views.rebuild(log)
            assert refused.value.code == "VIEW_FAILED"
        assert Counts(name).read(log) == counted
        assert list(older.behind(log)) == [(name, ViewState(1, log.head().size), True)]
        assert [state for _, state, is_whole in new.behind(log) if not is_whole] == [None]
