"""A feed that is behind the cut of a log says so, and continues when the contents are given back."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.feeds.feeding import Feeding, act, deliver
from world.audit.sealing import last_commit
from world.errors import RefusedError
from worldprotocol.export.archive.cutting import CutPlan, cut, open_for_cutting
from worldprotocol.export.archive.manifest import ArchiveFolder
from worldprotocol.export.feeds.running import feed_status


def cut_behind(fed: Feeding, behind: int) -> None:
    """Remove the contents of all events but the newest ones."""
    archive = cast("ArchiveFolder", SimpleNamespace(digest="0" * 64))
    with open_for_cutting(fed.address) as log:
        cut(log, CutPlan((archive,), last_commit(log, log.head().size - behind), 0), by="operator", now_ms=0)


@pytest.mark.parametrize("settings", ["", 'events = ["decision.*"]', 'format = "ocsf"'])
def test_a_feed_behind_a_cut_is_refused_and_delivers_nothing(fed: Feeding, settings: str) -> None:
    act(fed.realm, 5)
    feed = fed.feed(f'file = "events.jsonl"\n{settings}')
    cut_behind(fed, 8)
    with pytest.raises(RefusedError) as refused:
        deliver(feed)
    assert refused.value.code == "EVENT_ARCHIVED"
    assert "--undo" in refused.value.message
    assert not Path(feed.config.file or "").exists()


def test_a_feed_that_had_delivered_what_is_cut_continues(fed: Feeding) -> None:
    act(fed.realm, 5)
    feed = fed.feed('file = "events.jsonl"')
    deliver(feed)
    cut_behind(fed, 8)
    act(fed.realm)
    deliver(feed)
    told: dict[str, Any] = feed_status(feed)
    assert (told["state"], told["position"], told["sent"]) == ("current", fed.size, fed.size)
