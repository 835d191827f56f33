"""The guard of a session: one a session, which renews it, reports the end of its agent, and holds nothing of it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import psutil
import pytest

from tests.agents.fake_realm_server import ALLOW, HELD, LATER, FakeServer, fake_server, http
from tests.agents.guarded import Agent, guards
from tests.support.patience import PATIENCE_S, until
from worldprotocol.agents import hook_client
from worldprotocol.agents.hooks.session_guard import ATTEMPTS, END, ENDING, report

if TYPE_CHECKING:
    import _socket

pytestmark = pytest.mark.requirement("LIVE-caller")

AGENT = Path(__file__).resolve().parent / "plain_agent.py"


@contextmanager
def running(server: FakeServer, session: str | None = None) -> Iterator[Agent]:
    agent = Agent(server.address, session)
    try:
        yield agent
    finally:
        agent.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with fake_server(tmp_path / "sock") as found:
        yield found


def guard_of(agent: Agent) -> psutil.Process:
    """Return the only guard of the session of an agent; it may have been started just now."""
    until(lambda: guards(agent.session))
    [found] = guards(agent.session)
    return found


def ends(server: FakeServer) -> list[Any]:
    return [one.json for one in server.of("sessions:end")]


def test_hooks_of_a_session_leave_one_guard_that_renews_it(server: FakeServer) -> None:
    with running(server) as agent:
        for _ in range(3):
            assert json.loads(agent.hook()["out"]) == ALLOW
        for _ in range(8):
            agent.start()
        server.wait_for(lambda: len(server.of("hooks/claude-code")) == 11)
        assert all("wp-hook-guarded" in one.headers for one in server.of("hooks/claude-code"))
        server.wait_for(lambda: server.of("sessions:renew"))
        guard_of(agent)
        [renewed, *_] = server.of("sessions:renew")
        assert renewed.path == "/v1/realms/main/sessions:renew"
        assert renewed.json == {"sessions": [agent.session]}
        assert renewed.headers["authorization"] == "Bearer wp1_token"


@pytest.mark.slow
def test_a_session_is_renewed_as_long_as_its_agent_lives_and_its_server_is_away_now_and_then(
    server: FakeServer,
) -> None:
    with running(server) as agent:
        agent.hook()
        server.wait_for(lambda: len(server.of("sessions:renew")) == 2)
        server.session_answer = http(503, b"")
        server.wait_for(lambda: len(server.of("sessions:renew")) == 3)
        server.session_answer = http(200, b"{}")
        server.cuts = 1
        server.wait_for(lambda: len(server.of("sessions:renew")) == 5)
        guard_of(agent)
        assert ends(server) == []


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_end_of_the_agent_is_reported(server: FakeServer, sent: signal.Signals) -> None:
    with running(server) as agent:
        agent.hook()
        agent.kill(sent)
        server.wait_for(lambda: ends(server))
        until(lambda: not guards(agent.session))
        assert ends(server) == [{"session": agent.session, "noticedBy": "process"}]


def test_the_end_of_an_agent_whose_call_waits_is_reported_and_its_connection_closed(server: FakeServer) -> None:
    server.answer = HELD
    with running(server) as agent:
        agent.start()
        server.wait_for(lambda: server.of("hooks/claude-code"))
        agent.kill()
        server.wait_for(lambda: server.left == 1 and ends(server))


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGHUP, signal.SIGTERM])
def test_a_signal_to_the_group_of_the_agent_does_not_end_the_guard(server: FakeServer, sent: signal.Signals) -> None:
    with running(server) as agent:
        agent.hook()
        guard = guard_of(agent)
        assert os.getsid(guard.pid) not in (os.getsid(0), os.getsid(agent.process.pid))
        os.killpg(agent.process.pid, sent)  # as Ctrl-C and a closed terminal do
        server.wait_for(lambda: ends(server))


def test_a_guard_holds_nothing_of_the_agent(server: FakeServer) -> None:
    with running(server) as agent:
        agent.hook()  # it returns when the pipes of the hook have ended
        server.wait_for(lambda: server.of("sessions:renew"))  # it has read its own files
        guard = guard_of(agent)
        held = {number: os.readlink(f"/proc/{guard.pid}/fd/{number}") for number in os.listdir(f"/proc/{guard.pid}/fd")}
        assert {held[one] for one in ("0", "1", "2")} == {"/dev/null"}
        more = [name for number, name in held.items() if number not in ("0", "1", "2")]
        assert [one for one in more if not one.startswith("socket:") and one != "anon_inode:[pidfd]"] == []
        assert [one for one in more if one == "anon_inode:[pidfd]"] == ["anon_inode:[pidfd]"]
        assert {"WORLDCTL_TOKEN"} <= {*guard.environ()} <= {"WORLDCTL_TOKEN", "SSL_CERT_FILE", "SSL_CERT_DIR"}
        assert guard.cwd() == "/"
        assert guard.ppid() not in (agent.process.pid, os.getpid())


def test_the_end_of_a_session_ends_its_guard_and_a_later_call_leaves_a_new_one(server: FakeServer) -> None:
    with running(server) as agent:
        agent.hook()
        first = guard_of(agent)
        assert agent.hook("SessionEnd")["code"] == 0
        first.wait(PATIENCE_S)
        assert ends(server) == []
        agent.hook()
        guard_of(agent)


def test_a_session_whose_guard_was_killed_gets_another_one(server: FakeServer) -> None:
    with running(server) as agent:
        agent.hook()
        first = guard_of(agent)
        first.kill()
        first.wait(PATIENCE_S)
        agent.hook()
        guard_of(agent)
        assert ends(server) == []


def test_the_end_of_an_agent_is_reported_when_the_server_is_there_again(server: FakeServer) -> None:
    server.session_answer = http(503, b"")
    with running(server) as agent:
        agent.hook()
        agent.kill()
        server.wait_for(lambda: len(ends(server)) > 1)
        guard_of(agent)
        server.session_answer = http(200, b"{}")
        until(lambda: not guards(agent.session))


def test_a_session_that_another_process_continues_is_not_reported_as_ended(server: FakeServer) -> None:
    server.session_answer = http(503, b"")
    with running(server) as first, running(server, first.session) as second:
        first.hook()
        old = guard_of(first)
        first.kill()
        server.wait_for(lambda: ends(server))
        second.hook()
        old.wait(PATIENCE_S)
        assert guard_of(first).pid != old.pid
        server.session_answer = http(200, b"{}")


def test_no_call_of_a_process_that_continues_a_session_precedes_the_report_of_the_earlier_one(
    server: FakeServer,
) -> None:
    with running(server) as first, running(server, first.session) as second:
        first.hook()
        old = guard_of(first)
        server.session_answer = LATER
        first.kill()
        server.wait_for(lambda: ends(server))  # the report is under way
        second.start()
        second.start()  # beside it
        until(lambda: is_waiting(second, 2) or len(server.of("hooks/claude-code")) > 1)
        calls, found = len(server.of("hooks/claude-code")), guards(first.session)
        server.session_answer = http(200, b"{}")
        server.free()
        assert (calls, found) == (1, [old])
        server.wait_for(lambda: len(server.of("hooks/claude-code")) == 3)
        until(lambda: guards(first.session) not in ([], [old]))
        assert len(ends(server)) == 1


@pytest.fixture
def of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the kernel's word on the user of this process differ from the user that this process has."""
    monkeypatch.setattr("posix.getuid", lambda: os.getuid() + 1)


@pytest.mark.usefixtures("of_another_user")
def test_no_other_user_stops_the_report_of_a_guard() -> None:
    with socket.socket(socket.AF_UNIX) as notice, socket.socket(socket.AF_UNIX) as other:
        notice.bind(b"\0" + uuid4().bytes)
        name, sent = notice.getsockname(), []

        def send(operation: str, _: list[int]) -> dict[str, object] | None:
            sent.append(operation)
            if len(sent) == 1:
                other.connect(name + ENDING.encode())
                return None
            return {}

        report(send, cast("_socket.socket", notice))
    assert sent == [END, END]


@pytest.mark.usefixtures("of_another_user")
def test_no_other_user_delays_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"\0{uuid4()}"

    def poll() -> None:
        raise AssertionError("it waits")

    with socket.socket(socket.AF_UNIX) as other:
        other.bind(f"{name}{ENDING}")
        other.listen()
        monkeypatch.setattr("select.poll", poll)
        hook_client._await_report(name)


def is_waiting(agent: Agent, count: int) -> bool:
    """Return whether so many hooks of an agent wait for the report of a guard: they are connected to its socket."""
    options = {"--server": agent.place.server, "--realm": agent.place.realm}
    _, name = hook_client._guarded("claude-code", options, {"session_id": agent.session})
    sockets = Path("/proc/net/unix").read_text().splitlines()
    return len([one for one in sockets if one.endswith(f"{name[1:]}{ENDING}")]) == 1 + count


def test_renewals_go_on_until_they_reach_the_server_that_holds_the_session(server: FakeServer) -> None:
    elsewhere = http(200, b'{"renewed": 1, "elsewhere": ["s"]}')
    server.session_answer = elsewhere
    with running(server) as agent:
        agent.hook()
        server.wait_for(lambda: len(server.of("sessions:renew")) == ATTEMPTS + 1)
        sent = [one.json for one in server.of("sessions:renew")]
        assert sent == [{"sessions": [agent.session]}] * ATTEMPTS + [{"sessions": [agent.session], "moves": True}]


def test_an_operation_that_the_server_does_not_have_is_not_repeated(server: FakeServer) -> None:
    server.session_answer = http(404, b"{}")
    with running(server) as agent:
        agent.hook()
        agent.kill()
        until(lambda: not guards(agent.session))
        assert len(ends(server)) == 1


def test_the_agent_is_the_process_that_runs_the_shells_of_a_hook(server: FakeServer) -> None:
    with running(server) as agent:
        event = {"hook_event_name": "PreToolUse", "session_id": agent.session}
        command = f"bash -lc {shlex.quote(agent.place.command('claude-code', is_before=True))}; exit $?"
        assert [agent.run(command, event)["code"] for _ in range(2)] == [0, 0]
        guard_of(agent)
        assert ends(server) == []  # the shells have ended
        agent.kill()
        server.wait_for(lambda: ends(server))
