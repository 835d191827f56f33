"""The recorded log of a directory is a test: what it came to when it was recorded, it comes to for ever."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.golden.realms import LOG, SUMMARY, record, stored, summary
from worldprotocol.directory.directory import RealmDirectory
from worldprotocol.directory.events import decode_directory_event, new_directory_event


def opened(folder: Path) -> RealmDirectory:
    stored(str(folder / "realms.db"))
    return RealmDirectory.open(folder / "realms.db", read_only=True)


def topics(lines: bytes) -> list[str]:
    return [event["topic"] for event in map(json.loads, lines.splitlines()) if "topic" in event]


@pytest.mark.requirement("CARD-tests", "CARD-replay", "CARD-log")
def test_a_golden_directory_comes_to_the_same_places_and_history(tmp_path: Path) -> None:
    with opened(tmp_path) as directory:
        assert directory.verify() == []
        assert summary(directory) == json.loads(SUMMARY.read_text(encoding="utf-8"))
        for event in directory.log.log.read():
            again = new_directory_event(decode_directory_event(event))
            assert (again.originator_id, again.topic, again.state) == (event.stream, event.topic, event.state)


@pytest.mark.requirement("CARD-tests")
def test_the_same_works_record_the_same_topics() -> None:
    assert topics(record()) == topics(LOG.read_bytes())
