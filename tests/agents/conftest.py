"""A realm of coding agents, and a server of it in this process, by clocks of the test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.called import Monotonic, copied, founded
from world.audit.verify import verify
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return copied(tmp_path)


@pytest.fixture
def realm(folder: Path) -> Iterator[Realm]:
    with founded(folder) as opened:
        yield opened
        found = verify(opened.log)
        assert found.ok, found.findings


@pytest.fixture
def clock() -> Monotonic:
    return Monotonic()


@pytest.fixture
def absent(realm: Realm, clock: Monotonic) -> AbsentCallers:
    return AbsentCallers(realm, Presence(clock), RunningCalls(clock))
