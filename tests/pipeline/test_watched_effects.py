"""Effects of proposals in a workspace: held to what was arbitrated, and undone where it went wrong (KO-3)."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from host import handler
from tests.pipeline.works import Held, acting, check_log, running
from tests.pipeline.workshop import AFTER, ALL, BEFORE, STEPS, a_workshop, contents, furnished, step, workshop
from tests.support.patience import PATIENCE_S
from world.clock import SequentialIds
from world.errors import ScopeViolationError
from world.events.execution_events import EffectFulfilled
from world.events.proposal_events import ProposalFailed
from world.events.run_events import RunObserved, RunRolledBack, RunViolated

pytestmark = [pytest.mark.slow, pytest.mark.requirement("HC-handlers", "KO-3")]


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return furnished(tmp_path / "ws")


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """Return the URL of a server on the loopback interface, and what it was asked for."""
    asked: list[str] = []

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *given: Any) -> None:
            """Keep quiet."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=lambda: http.serve_forever(0.02), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{http.server_port}", asked
    http.shutdown()
    http.server_close()
    thread.join()


def check(address: str, domain: Any = workshop) -> Any:
    return check_log(address, domain=domain)


@pytest.mark.requirement("HC-handlers", "INT-13.5")
def test_what_is_declared_is_done_and_recorded(address: str, root: Path) -> None:
    with a_workshop(address, root) as world:
        done = world.act("ann", "run", {**ALL, "steps": STEPS})
        assert (done.status, done.error) == ("completed", None)
        assert contents(root) == AFTER
        told = world.host.verification(done.proposal_id)
        assert {(one.predicate, one.resource) for one in told.observed.values()} == {
            ("CONSUMES", "FILE:/a.txt"),
            ("MUTATES", "FILE:/b.txt"),
            ("MUTATES", "FILE:/new.txt"),
            ("PROVIDES", "FILE:/made.txt"),
            ("PROVIDES", "FILE:/folder"),
            ("DELETES", "FILE:/sub/*"),
            ("RENAMES", "FILE:/a.txt"),
            ("PROVIDES", "FILE:/moved.txt"),
        }
        assert (told.violations, told.rollbacks, told.outcome) == ([], [], "completed")
        twice = world.act("ann", "run", {**ALL, "steps": [STEPS[1], STEPS[1]]})
        (counted,) = world.host.verification(twice.proposal_id).observed.values()
        assert (counted.resource, counted.count) == ("FILE:/b.txt", 2)
    check(address)


OUTSIDE: list[tuple[str, str, dict[str, Any]]] = [
    ("CONSUMES", "/sub/deep.txt", step("file.read", path="/sub/deep.txt")),
    ("CONSUMES", "/sub", step("file.list", path="/sub")),
    ("MUTATES", "/a.txt", step("file.write", path="/a.txt", text="mine")),
    ("MUTATES", "/c.txt", step("file.append", path="/c.txt", text="mine")),
    ("PROVIDES", "/c.txt", step("file.create", path="/c.txt", text="mine")),
    ("PROVIDES", "/d", step("file.mkdir", path="/d")),
    ("DELETES", "/a.txt", step("file.delete", path="/a.txt")),
    ("RENAMES", "/a.txt", step("file.rename", from_="/a.txt", to="/z.txt")),
    ("MUTATES", "/*", step("process.run", argv=["true"])),  # an opaque tool, declared neither by hand nor by place
    ("CONSUMES", "URL:http://127.0.0.1:9/x", step("http.request", method="GET", url="http://127.0.0.1:9/x")),
]


@pytest.mark.parametrize(("predicate", "name", "wrong"), OUTSIDE, ids=[one[2]["effect"] for one in OUTSIDE])
@pytest.mark.requirement("KO-3", "KO-3.3", "INV-I5", "KO-7")
def test_an_effect_outside_is_stopped_before_it_happens_and_the_earlier_ones_are_undone(
    address: str, root: Path, predicate: str, name: str, wrong: dict[str, Any]
) -> None:
    heard: list[Any] = []
    plan = {"consumes": ["FILE:/a.txt"], "mutates": ["FILE:/b.txt"], "provides": ["FILE:/made.txt"]}
    steps = [step("file.append", path="/b.txt", text="!"), step("file.create", path="/made.txt", text="made"), wrong]
    with a_workshop(address, root) as world:
        world.subscribe(lambda _at, event, _do: heard.append(event))
        failed = world.act("ann", "run", {**plan, "steps": [*steps, step("file.read", path="/a.txt")]})
        assert contents(root) == BEFORE
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "KLIS_SCOPE_VIOLATION"
        assert failed.error.message.startswith(f"Agent attempted {predicate} on {name} but ")
        assert failed.error.context is not None
        assert failed.error.context["agent_id"] == "ann"
        told = world.host.verification(failed.proposal_id)
        assert [one.predicate for one in told.violations] == [predicate]
        assert told.violations[0].blocked
        (back,) = told.rollbacks
        assert told.outcome == "failed"
        assert (back.restored, back.removed, back.failed) == (["/b.txt"], ["/made.txt"], [])
        sealed = world.sealed(failed.world_id)
        assert (sealed.outcome, sealed.error) == ("failed", failed.error)
        assert [type(event) for event in heard if isinstance(event, (RunViolated, RunRolledBack, ProposalFailed))] == [
            RunViolated,
            RunRolledBack,
            ProposalFailed,
        ]
        assert world.data()["told"] == []
        assert world.realm().klis.leases == {}
        again = world.act("bob", "run", {**plan, "steps": steps[:2]})
        assert again.status == "completed"
    check(address)


@pytest.mark.requirement("KO-3", "INV-I5")
def test_an_action_that_takes_the_violation_lightly_gains_nothing(address: str, root: Path) -> None:
    steps = [
        step("file.append", path="/b.txt", text="!"),
        step("file.write", path="/a.txt", text="mine"),
        step("file.append", path="/b.txt", text="?"),
    ]
    with a_workshop(address, root) as world:
        failed = world.act("ann", "insist", {"mutates": ["FILE:/b.txt"], "steps": steps})
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "KLIS_SCOPE_VIOLATION")
        assert contents(root) == BEFORE
        results = [event for _, event in world.events() if isinstance(event, EffectFulfilled)]
        assert len(results) == 3  # the one before, the violation, and the rollback
    check(address)


@pytest.mark.requirement("KO-3.3", "KO-7")
def test_an_action_that_fails_by_itself_gives_back_what_it_changed(address: str, root: Path) -> None:
    with a_workshop(address, root) as world:
        failed = world.act("ann", "run", {**ALL, "steps": STEPS, "give_up": True})
        assert failed.error is not None
        assert failed.error.code == "GIVEN_UP"
        assert contents(root) == BEFORE
        assert failed.rollback is not None
        assert failed.to_wire()["rollback"]["failed"] == []
    check(address)


@pytest.mark.requirement("KO-3.3", "WP-exec")
def test_an_action_that_fails_with_more_than_the_log_can_hold_is_undone_and_ends_too(address: str, root: Path) -> None:
    with a_workshop(address, root) as world:
        failed = world.act("ann", "shout", {**ALL, "steps": STEPS})
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "WORLD_TOO_LARGE")
        assert contents(root) == BEFORE
        assert world.act("ann", "run", {**ALL, "steps": STEPS}).status == "completed"
    check(address)


@pytest.mark.requirement("KO-3.3")
def test_an_effect_that_fails_gives_back_what_went_before_it(address: str, root: Path) -> None:
    steps = [STEPS[1], step("file.delete", path="/sub/missing.txt")]
    with a_workshop(address, root) as world:
        failed = world.act("ann", "run", {**ALL, "steps": steps})
        assert failed.error is not None
        assert failed.error.code == "FILE_NOT_FOUND"
        assert contents(root) == BEFORE
        caught = world.act("ann", "insist", {**ALL, "steps": steps})
        assert caught.status == "completed"
        assert contents(root) == BEFORE | {"b.txt": "bb"}
    check(address)


@pytest.mark.requirement("KO-3", "INT-13.5")
def test_a_patch_outside_of_its_scope_gives_back_what_its_effects_did(address: str, root: Path) -> None:
    with a_workshop(address, root) as world:
        failed = world.act("ann", "run", {**ALL, "steps": STEPS[1:2]}, scope=["elsewhere"])
        assert failed.status == "failed"
        assert failed.error is not None
        assert contents(root) == BEFORE
    check(address)


# Declarative flows

PORTABLE = """
id: urn:test:notes
version: 1.0.0
state:
  fields:
    count: {type: number, default: 0}
actions:
  note:
    input: {type: object, fields: {name: {type: string, required: true}, into: {type: string, required: true}}}
    manifest:
      - {predicate: MUTATES, resource: "FILE:/{input.name}.txt"}
    flow:
      kind: seq
      steps:
        - kind: effect
          type: file.append
          params:
            path:
              kind: concat
              args: [{kind: lit, value: "/"}, {kind: get, path: input.name}, {kind: lit, value: ".txt"}]
            text: {kind: lit, value: "!"}
        - kind: effect
          type: file.append
          params:
            path: {kind: get, path: input.into}
            text: {kind: lit, value: "?"}
        - kind: patch
          op: set
          path: count
          value: {kind: add, left: {kind: get, path: count}, right: {kind: lit, value: 1}}
"""


@pytest.mark.requirement("HC-handlers", "KO-3", "KO-3.3")
def test_a_declarative_flow_is_held_to_its_manifest_like_python(address: str, root: Path, tmp_path: Path) -> None:
    portable = tmp_path / "notes.yaml"
    portable.write_text(PORTABLE)
    assert yaml.safe_load(PORTABLE)["id"] == "urn:test:notes"
    with a_workshop(address, root, domain=portable) as world:
        done = world.act("ann", "note", {"name": "a", "into": "/a.txt"})
        assert (done.status, contents(root)["a.txt"], world.data()["count"]) == ("completed", "a!?", 1)
        failed = world.act("ann", "note", {"name": "a", "into": "/b.txt"})
        assert failed.error is not None
        assert failed.error.code == "KLIS_SCOPE_VIOLATION"
        assert "MUTATES on /b.txt" in failed.error.message
        assert contents(root) == BEFORE | {"a.txt": "a!?"}
        assert world.data()["count"] == 1
    check(address, portable)


# Processes and HTTP


@pytest.mark.requirement("HC-handlers", "KO-3")
def test_a_process_and_a_request_that_are_declared_are_made(
    address: str, root: Path, server: tuple[str, list[str]]
) -> None:
    url, asked = server
    plan = {"provides": ["PROCESS:sh"], "mutates": ["FILE:/sub/*"], "consumes": [f"URL:{url}/site/*"]}
    steps = [
        step("process.run", argv=["echo hello > out.txt"], shell="sh", cwd="/sub"),
        step("http.request", method="GET", url=f"{url}/site/page"),
    ]
    with a_workshop(address, root) as world:
        done = world.act("ann", "run", {**plan, "steps": steps})
        assert (done.status, done.error) == ("completed", None)
        assert contents(root)["sub/out.txt"] == "hello\n"
        assert asked == ["/site/page"]
        failed = world.act("ann", "run", {**plan, "steps": steps, "give_up": True})
        assert failed.status == "failed"
        assert contents(root)["sub/out.txt"] == "hello\n"
        assert failed.to_wire()["rollback"]["failed"] == []
        other = world.act("ann", "run", {"consumes": [f"URL:{url}/site/page"], "steps": [steps[1], steps[1]]})
        assert other.status == "completed"
        assert len(asked) == 4
        outside = world.act(
            "ann",
            "run",
            {"consumes": [f"URL:{url}/site/page"], "steps": [step("http.get", url=f"{url}/site/other")]},
        )
        assert outside.error is not None
        assert outside.error.code == "KLIS_SCOPE_VIOLATION"
        assert len(asked) == 4
    check(address)


def test_a_process_that_runs_is_killed_when_its_execution_is_called_off_and_its_files_are_given_back(
    address: str, root: Path
) -> None:
    plan = {"provides": ["PROCESS:sh"], "mutates": ["FILE:/sub/*"]}
    script = "echo changed > deep.txt; exec sleep 600"
    steps = [step("process.run", argv=[script], shell="sh", cwd="/sub", timeoutMs=600_000)]
    with a_workshop(address, root) as world:
        with acting(world, "ann", "run", {**plan, "steps": steps}) as ended:
            while (root / "sub" / "deep.txt").read_text() != "changed\n":
                os.sched_yield()
            there = working_in(root / "sub")
            world.host.cancel(running(world), by="bob", reason="it takes too long")
        assert ended[0].error.code == "CANCELLED"
        assert contents(root) == BEFORE
        assert there
        assert working_in(root / "sub") == []
    check(address)


def working_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is a folder, by their numbers outside of any namespace."""
    return [process.pid for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(folder)]


# Own handlers


def touching(path: Path) -> Any:
    @handler("touch", touches=[("MUTATES", "FILE:/b.txt")])
    def touch(params: Any, call: Any) -> Any:
        with path.open("a") as file:
            file.write("touched")
        return "fine"

    return touch


@pytest.mark.requirement("KO-3", "HC-handlers")
def test_a_handler_of_ones_own_is_watched_while_it_works(address: str, root: Path, tmp_path: Path) -> None:
    for number, (name, is_fine) in enumerate({"b.txt": True, "a.txt": False, "../passwd": False}.items()):
        given: dict[str, Any] = {
            "effects": [touching(root / name)],
            "ids": SequentialIds(name),
        }  # backups lie in the workspace
        with a_workshop(f"{address}{number}", root, **given) as world:
            ended = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("touch")]})
            assert ended.status == ("completed" if is_fine else "failed")
            if not is_fine:
                assert ended.error is not None
                assert ended.error.code == "KLIS_SCOPE_VIOLATION"
                (seen,) = world.host.verification(ended.proposal_id).violations
                assert seen.depth == "process"
                assert seen.blocked
        check(f"{address}{number}")
    assert contents(root) == BEFORE | {"b.txt": "btouched"}
    assert not (tmp_path / "passwd").exists()


@pytest.mark.requirement("KO-3", "KO-3.3")
def test_a_handler_that_catches_the_violation_or_says_that_all_is_well_gains_nothing(address: str, root: Path) -> None:
    told: list[str] = []

    @handler("sneak")
    def sneak(params: Any, call: Any) -> Any:
        with (root / "b.txt").open("w") as file:
            file.write("allowed")
        for name in ("a.txt", "b.txt"):
            try:
                (root / name).write_text("sneaked")
            except ScopeViolationError as error:
                told.append(error.code)
        return "all is well"

    with a_workshop(address, root, effects=[sneak]) as world:
        failed = world.act("ann", "insist", {"mutates": ["FILE:/b.txt"], "steps": [step("sneak"), step("sneak")]})
        assert told == ["KLIS_SCOPE_VIOLATION"] * 2  # the session is over with the first
        assert failed.error is not None
        assert (failed.status, failed.error.code) == ("failed", "KLIS_SCOPE_VIOLATION")
        assert contents(root) == BEFORE
    check(address)


@pytest.mark.requirement("KO-3.3", "WP-exec")
def test_what_an_effect_was_just_doing_when_it_was_called_off_is_undone_too(address: str, root: Path) -> None:
    begun = threading.Event()

    @handler("slow")
    def slow(params: Any, call: Any) -> Any:
        with (root / "b.txt").open("a") as file:
            begun.set()
            while not call.is_cancelled():
                threading.Event().wait(0.01)
            threading.Event().wait(0.2)  # its last write is on its way
            file.write("late")

    with a_workshop(address, root, effects=[slow]) as world:
        with acting(world, "ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("slow")]}) as ended:
            assert begun.wait(PATIENCE_S)
            world.host.cancel(running(world), by="bob", reason="enough")
        assert ended[0].error.code == "CANCELLED"
        assert contents(root) == BEFORE
        assert world.host.verification(ended[0].proposal_id).rollbacks[0].restored == ["/b.txt"]
    check(address)


@pytest.mark.requirement("KO-3", "KO-3.3")
def test_a_handler_that_goes_on_for_long_after_its_violation_is_not_waited_for(address: str, root: Path) -> None:
    asked: list[bool] = []

    def linger(_params: Any, call: Any) -> Any:
        with suppress(ScopeViolationError):
            (root / "a.txt").write_text("mine")
        asked.append(call.is_cancelled())
        with pytest.raises(Exception, match="not declared"):
            call.check()
        assert ended.wait(PATIENCE_S)

    ended = threading.Event()
    held = Held(linger)
    held.may_go.set()

    @handler("linger", time_limit_ms=3_600_000)
    def lingering(params: Any, call: Any) -> Any:
        return held(params, call)

    with a_workshop(address, root, effects=[lingering]) as world:
        failed = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("linger")]})
        assert failed.error is not None
        assert failed.error.code == "KLIS_SCOPE_VIOLATION"
        assert failed.error.message.startswith("Agent attempted MUTATES on /a.txt")
        assert asked == [True]
        assert not held.over.is_set()
        ended.set()
        assert held.over.wait(PATIENCE_S)
        assert contents(root) == BEFORE
    check(address)


@pytest.mark.requirement("KO-3")
def test_a_handler_that_starts_a_process_or_a_thread_is_watched_there_too(address: str, root: Path) -> None:
    @handler("start")
    def start(params: Any, call: Any) -> Any:
        subprocess.run(["touch", "c.txt"], cwd=root, check=False)

    @handler("thread")
    def thread(params: Any, call: Any) -> Any:
        def work() -> None:
            with suppress(Exception):
                (root / "a.txt").write_text("mine")

        worker = threading.Thread(target=work)
        worker.start()
        worker.join()

    with a_workshop(address, root, effects=[start, thread]) as world:
        for name in ("start", "thread"):
            failed = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step(name)]})
            assert failed.error is not None
            assert failed.error.code == "KLIS_SCOPE_VIOLATION"
            assert contents(root) == BEFORE
    check(address)


@pytest.mark.requirement("KO-3", "WP-exec")
def test_a_handler_that_was_given_up_can_open_nothing_any_more(address: str, root: Path) -> None:
    told: list[str] = []

    def late(_params: Any, _call: Any) -> Any:
        try:
            (root / "b.txt").write_text("late")
        except ScopeViolationError as error:
            told.append(error.code)

    held = Held(late)

    @handler("slow", time_limit_ms=200)
    def slow(params: Any, call: Any) -> Any:
        return held(params, call)

    with a_workshop(address, root, effects=[slow]) as world:
        failed = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("slow")]})
        assert failed.error is not None
        assert failed.error.code == "EFFECT_TIMED_OUT"
        held.may_go.set()
        assert held.over.wait(PATIENCE_S)
        assert told == ["KLIS_SCOPE_VIOLATION"]
        assert contents(root) == BEFORE
    check(address)


def test_a_handler_that_touches_thousands_of_files_is_recorded_all_the_same(address: str, root: Path) -> None:
    @handler("many")
    def many(params: Any, call: Any) -> Any:
        for number in range(2_500):
            (root / "sub" / str(number)).touch()

    with a_workshop(address, root, effects=[many]) as world:
        done = world.act("ann", "run", {"mutates": ["FILE:/sub/*"], "steps": [step("many")]})
        assert done.status == "completed"
        told = [event for _, event in world.events() if isinstance(event, RunObserved)]
        assert len(told) >= 3
        assert max(len(event.observed) for event in told) == 1_000
        assert len(world.host.verification(done.proposal_id).observed) >= 2_500
    check(address)


def test_a_violation_at_a_name_that_is_no_text_is_recorded(address: str, root: Path) -> None:
    @handler("odd")
    def odd(params: Any, call: Any) -> Any:
        with open(os.path.join(os.fsencode(root.parent), b"\xff\n*"), "wb") as file:
            file.write(b"x")

    with a_workshop(address, root, effects=[odd]) as world:
        failed = world.act("ann", "run", {"mutates": ["FILE:/b.txt"], "steps": [step("odd")]})
        assert failed.error is not None
        assert failed.error.code == "KLIS_SCOPE_VIOLATION"
        assert world.act("ann", "run", {}).status == "completed"
    check(address)
