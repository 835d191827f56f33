"""Runs whose end goes wrong, and what others must never lose by it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.runs.realm import a_workspace, opened, text_of
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import Boot, SystemClock
from world.errors import RefusedError, ScopeViolationError, StorageFullError
from world.events.lease_events import VerdictGiven
from world.events.run_events import RunClosed, RunCompared, RunOpened, RunRolledBack, RunViolated
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.runs.governed import GovernedRun, RunOptions
from worldprotocol.runs.session import GovernedSession

pytestmark = pytest.mark.slow

BEFORE = {"notes.txt": "notes\n", "src/a.py": "one\n"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return a_workspace(tmp_path)


TTL_MS = 600_000
"""Of the leases of a session that must not lose them before it vanishes."""


class Later(SystemClock):
    """The system's clock, after so much time that those leases have expired."""

    def now_ms(self) -> int:
        return super().now_ms() + TTL_MS + 60_000

    def boot(self) -> Boot:
        name, passed = super().boot()
        return Boot(name, passed + TTL_MS + 60_000)


def of_run(world: Realm, run_id: str, *kinds: type) -> list[Any]:
    found = [event for _, event in world.events() if getattr(event, "run_id", None) == run_id]
    return [event for event in found if not kinds or isinstance(event, kinds)]


def vanish(folder: Path, body: str) -> None:
    """Run Python in a session of another process, and kill that process in the middle."""
    script = (
        "import os, signal, sys; from pathlib import Path; from tests.runs.realm import opened\n"
        "from worldprotocol import RunOptions\n"
        "folder = Path(sys.argv[1]); root = folder / 'w'\n"
        f"with opened(folder) as world:\n{body}\n        os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT, timeout=PATIENCE_S, check=False)
    assert child.returncode == -signal.SIGKILL


@pytest.mark.requirement("KO-4")
def test_many_long_names_are_recorded_in_as_many_events_as_it_takes(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        with world.host.session(agent="ann", writes=["/src/**"]) as session:
            for number in range(2_500):
                (root / "src" / f"{number:0>220}").touch()
        compared = of_run(world, session.run.run_id, RunCompared)
        assert [len(event.changes) for event in compared] == [1_000, 1_000, 500]
        assert session.outcome == "completed"
        deep = "/".join(["n" * 200] * 8)
        with world.host.session(agent="ann", writes=["/src/**"]) as session:
            (root / "src" / deep).mkdir(parents=True)
        assert any(deep in one.resource for one in world.host.verification(session.run.run_id).changes)


@pytest.mark.requirement("KO-3.3")
@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt()])
def test_an_end_that_cannot_be_found_out_is_undone_before_others_are_let_in(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"])

        def broken(_: GovernedRun) -> Any:
            raise error

        with pytest.raises(type(error)), session:
            (root / "src" / "a.py").write_text("two")
            monkeypatch.setattr(GovernedRun, "_compared", broken)
        (closed,) = of_run(world, session.run.run_id, RunClosed)
        assert closed.outcome == "interrupted"
        assert not world.realm().klis.leases
    assert text_of(root) == BEFORE


@pytest.mark.requirement("KO-3", "KO-4")
def test_a_violation_is_recorded_though_the_log_was_away_when_it_happened(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"])
        with pytest.raises((ScopeViolationError, StorageFullError)), session:
            run = world.host._protocol.run
            monkeypatch.setattr(
                world.host._protocol, "run", lambda *_: (_ for _ in ()).throw(StorageFullError("X", "full"))
            )
            with suppress(StorageFullError, ScopeViolationError):
                (root / "notes.txt").write_text("never")
            monkeypatch.setattr(world.host._protocol, "run", run)
        assert [event.violation.resource for event in of_run(world, session.run.run_id, RunViolated)] == [
            "FILE:/notes.txt"
        ]
    assert text_of(root) == BEFORE


@pytest.mark.requirement("KO-3.2a", "KO-4")
def test_what_cannot_be_followed_is_a_violation_like_any_other(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        session = world.host.session(agent="ann", writes=["/src/**"])
        with pytest.raises(ScopeViolationError), session:
            (root / "src" / "a.py").write_text("two")
            with suppress(ScopeViolationError):
                os.fork()
        assert session.outcome == "violated"
        assert len(of_run(world, session.run.run_id, RunViolated)) == 1
    assert text_of(root) == BEFORE


@pytest.mark.requirement("KO-3")
def test_what_was_only_moved_is_not_what_the_session_made(tmp_path: Path, root: Path) -> None:
    manifest = {
        "ver": "1.0",
        "session_id": "s",
        "agent_id": "ann",
        "scope": [{"predicate": "RENAMES", "resource": "FILE:/src/*", "to": "FILE:/dst/*"}],
    }
    with opened(tmp_path) as world:
        session = world.host.session(manifest=manifest, run_options=RunOptions(by="ann"))
        with pytest.raises(ScopeViolationError, match=r"DELETES on /dst/a\.py"), session:
            (root / "src").rename(root / "dst")
            (root / "dst" / "a.py").unlink()
    assert text_of(root) == BEFORE


@pytest.mark.requirement("KO-3.3")
def test_recovery_gives_back_what_an_amendment_was_made_in(tmp_path: Path, root: Path) -> None:
    vanish(
        tmp_path,
        "    with world.host.session(agent='ann', writes=['/src/**'], run_options=RunOptions(mode='permissive')):\n"
        "        (root / 'src/a.py').write_text('changed')\n"
        "        (root / 'src/b.py').write_text('new')\n"
        "        (root / 'notes.txt').write_text('amended')",
    )
    with opened(tmp_path):
        assert text_of(root) == BEFORE


@pytest.mark.requirement("KO-3.3", "KM-7.1")
def test_recovery_is_made_in_the_name_of_the_run_of_an_agent_that_signs(tmp_path: Path, root: Path) -> None:
    vanish(
        tmp_path,
        "    with world.host.session(agent='ann', writes=['/src/**'], run_options=RunOptions(ttl_ms=1)):\n"
        "        (root / 'src/a.py').write_text('half done')",
    )
    with opened(tmp_path, workspace=None) as blind:
        blind.leases.desk.register_key("ann", bytes(range(32)), by="operator")
        with pytest.raises(RefusedError, match="needs a signature"):
            blind.leases.acquire(agent="ann", resource="FILE:/src/a.py")
    with opened(tmp_path) as world:
        assert text_of(root) == BEFORE
        verdicts = [event for _, event in world.events() if isinstance(event, VerdictGiven)]
        [opening] = [event for _, event in world.events() if isinstance(event, RunOpened)]
        assert verdicts[-1].channel == {"kind": "run", "runId": opening.run_id}
        assert verify(world.log).ok
        assert recheck(world).ok


@pytest.mark.requirement("KO-3.3")
def test_recovery_undoes_nothing_of_who_came_after(tmp_path: Path, root: Path) -> None:
    vanish(
        tmp_path,
        f"    with world.host.session(agent='ann', writes=['/src/**'], run_options=RunOptions(ttl_ms={TTL_MS})):\n"
        "        (root / 'src/a.py').write_text('half done')\n"
        "        world.host._leases",
    )
    later = Later()
    with opened(tmp_path, execute=False, clock=later) as blind:  # it recovers nothing
        held = blind.leases.acquire(agent="bob", resource="FILE:/src/a.py", timeout=PATIENCE_S)
        (root / "src" / "a.py").write_text("bob's")
        with opened(tmp_path, clock=later) as world:
            (closed,) = [event for _, event in world.events() if isinstance(event, RunClosed)]
            assert closed.outcome == "interrupted"
            assert held.is_active
    assert text_of(root)["src/a.py"] == "bob's"


@pytest.mark.requirement("KO-3.3", "KP-4b")
def test_recovery_releases_only_what_the_vanished_run_held(tmp_path: Path, root: Path) -> None:
    (root / "docs").mkdir()
    vanish(
        tmp_path,
        "    with world.host.session(agent='ann', session='s', writes=['/src/**']):\n"
        "        (root / 'src/a.py').write_text('half done')",
    )
    with opened(tmp_path, execute=False) as world:
        held = world.leases.acquire(agent="ann", session="s", resource="FILE:/docs/*", timeout=PATIENCE_S)
        with opened(tmp_path):
            assert text_of(root) == BEFORE
        assert held.is_active
        held.release()


def test_a_run_of_a_worker_that_is_not_known_to_be_gone_is_closed_when_its_leases_ended_long_ago(
    tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vanish(
        tmp_path,
        f"    with world.host.session(agent='ann', writes=['/src/**'], run_options=RunOptions(ttl_ms={TTL_MS})):\n"
        "        (root / 'src/a.py').write_text('half done')",
    )
    monkeypatch.setattr("world.engine.protocol.WorldProtocol.is_gone", lambda *_: False)  # as if on another machine
    monkeypatch.setattr("worldprotocol.runs.recovering.FORGOTTEN_MS", 1 << 60)
    with opened(tmp_path, clock=Later()) as world:
        (opened_,) = [event for _, event in world.events() if isinstance(event, RunOpened)]
        assert world.realm().runs
        monkeypatch.setattr("worldprotocol.runs.recovering.FORGOTTEN_MS", -1)
        world.settle()
        (closed,) = of_run(world, opened_.run_id, RunClosed)
        assert (closed.outcome, of_run(world, opened_.run_id, RunRolledBack)) == ("lost", [])
    assert text_of(root)["src/a.py"] == "half done"


def test_a_session_that_is_cancelled_while_it_waits_leaves_nothing_behind(tmp_path: Path, root: Path) -> None:
    async def main(world: Realm) -> None:
        session: GovernedSession = world.host.session(agent="old", writes=["/src/**"])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), session:
                raise AssertionError("it must not begin")

    with opened(tmp_path) as world:
        world.leases.desk.register_agent("old", by="operator", priority=1)
        held = world.leases.acquire(agent="young", resource="FILE:/src/*", timeout=0)
        asyncio.run(main(world))
        held.release()
        assert not world.realm().klis.leases
        assert not world.realm().klis.requests
        assert not world.realm().runs


def test_the_engines_own_files_are_granted_to_nobody(tmp_path: Path, root: Path) -> None:
    with opened(tmp_path) as world:
        for place in ("/.klock/backups/**", "/.klock/x"):
            with pytest.raises(RefusedError) as refused, world.host.session(agent="ann", writes=[place]):
                raise AssertionError("it must not begin")
            assert refused.value.code == "PRIVATE_PATH"
        for predicate in ("CONSUMES", "MUTATES"):  # a lease by itself is no way around it
            with pytest.raises(RefusedError) as refused:
                world.leases.acquire(agent="ann", resource="FILE:/.klock/x", predicate=predicate, timeout=0)
            assert refused.value.code == "PRIVATE_PATH"
        assert not world.realm().klis.leases
