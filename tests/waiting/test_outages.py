"""Opening with patience: what is waited for, for how long, and what ends the wait."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.counter import counter
from tests.support.patience import PATIENCE_S
from world.errors import DamagedLogError, LogBusyError, RefusedError, StorageFullError, WorldProtocolError
from world.log import open_log
from worldprotocol import Realm
from worldprotocol.api.waiting import outages
from worldprotocol.api.waiting.outages import ends_by_itself, patiently

AWAY = WorldProtocolError("LOG_UNAVAILABLE", "The server does not answer.")
DENIED = RefusedError("LOG_UNAVAILABLE", "The server refuses the password.")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outages, "FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr(outages, "LONGEST_OPENING_S", 0.002)


def failing(*errors: Exception) -> Callable[[], int]:
    """Return an attempt that fails with each error in turn, and then returns how often it was called."""
    left, calls = list(errors), [0]

    def attempt() -> int:
        calls[0] += 1
        if left:
            raise left.pop(0)
        return calls[0]

    return attempt


def test_an_attempt_is_repeated_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    busy, full = LogBusyError("LOG_BUSY", "busy"), StorageFullError("STORAGE_FULL", "full")
    with caplog.at_level(logging.WARNING):
        assert patiently(failing(AWAY, busy, full, AWAY), PATIENCE_S, "Opening") == 5
    assert [record.message for record in caplog.records] == [
        "Opening is repeated until it succeeds: The server does not answer. [LOG_UNAVAILABLE]",
        "Opening has succeeded.",
    ]


@pytest.mark.parametrize("error", [DENIED, DamagedLogError("LOG_DAMAGED", "damaged")], ids=["denied", "damaged"])
def test_what_does_not_end_by_itself_is_not_waited_for(error: WorldProtocolError) -> None:
    assert not ends_by_itself(error)
    with pytest.raises(type(error)) as raised:
        patiently(failing(AWAY, error), PATIENCE_S, "Opening")
    assert raised.value is error


def test_the_last_error_is_raised_when_the_patience_ends() -> None:
    for patience_s in (0.0, 0.01):
        with pytest.raises(WorldProtocolError) as raised:
            patiently(failing(*[AWAY] * 10_000), patience_s, "Opening")
        assert raised.value is AWAY


def test_a_realm_is_opened_once_its_database_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = str(tmp_path / "world.db")
    with Realm.create(address, domain=counter):
        pass
    opening, away = open_log, failing(AWAY, AWAY)

    def starting(*given: object, **options: object) -> object:
        away()
        return opening(*given, **options)  # type: ignore[arg-type]

    monkeypatch.setattr("worldprotocol.api.bootstrap.open_log", starting)
    with pytest.raises(WorldProtocolError):
        Realm.open(address, domain=counter)
    with Realm.open(address, domain=counter, patience=PATIENCE_S) as realm:
        assert realm.data()["sold"] == 0
    with pytest.raises(RefusedError, match="patience is 'long'"):
        Realm.open(address, domain=counter, patience="long")  # type: ignore[arg-type]
