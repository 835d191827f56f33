"""Closing ends, whatever goes wrong in it: nothing is left open that somebody waits for."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.shop import shop
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError
from worldprotocol.api.realm import Realm
from worldprotocol.api.workers import ProcessWorkers

ROOT = Path(__file__).parents[2]

FOLLOWED = """
import contextlib, sys, threading
from tests.pipeline.shop import shop
from world.errors import RefusedError
from worldprotocol.api.realm import Realm
from worldprotocol.api.workers import ProcessWorkers

def broken(self):
    raise RuntimeError("broken")

def follow():
    with contextlib.suppress(RefusedError):  # two tracebacks at once would be printed into each other
        list(world.log.follow())

ProcessWorkers.close = broken
with Realm.create(sys.argv[1], domain=shop) as world:
    threading.Thread(target=follow).start()
"""


def test_a_log_is_closed_though_the_worker_cannot_be(log_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any) -> None:
        raise RuntimeError("broken")

    world = Realm.create(log_url, domain=shop)
    ended = threading.Event()

    def follow() -> None:
        with pytest.raises(RefusedError, match="closed"):
            list(world.log.follow())
        ended.set()

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    monkeypatch.setattr(ProcessWorkers, "close", broken)
    with pytest.raises(RuntimeError, match="broken"):
        world.close()
    assert ended.wait(PATIENCE_S)
    follower.join(PATIENCE_S)


@pytest.mark.slow
def test_a_process_whose_closing_fails_ends_with_those_who_follow_its_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FOLLOWED, str(tmp_path / "w.db")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 1
    assert "RuntimeError: broken" in done.stderr
