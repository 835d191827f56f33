"""The guard of a session: one a session, which renews it, reports the end of its agent, and holds nothing of it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import psutil
import pytest

from tests.agents.called import Monotonic
from tests.agents.fake_realm_server import ALLOW, HELD, LATER, FakeServer, fake_server, http
from tests.agents.guarded import Agent, guards
from tests.support.patience import PATIENCE_S, until
from worldprotocol.agents import hook_client
from worldprotocol.agents.hooks import local_sockets
from worldprotocol.agents.hooks.local_sockets import NAMES, names_of
from worldprotocol.agents.hooks.session_guard import (
    ATTEMPTS,
    END,
    ENDED,
    FAILURES,
    MOVE,
    REFUSED,
    RENEW,
    _is_notified,
    look_after,
    renew,
    report,
)

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
        server.wait_for(lambda: len(server.of("sessions:renew")) == 2 + FAILURES)
        server.session_answer = http(200, b"{}")
        server.cuts = 1
        server.wait_for(lambda: len(server.of("sessions:renew")) == 2 + FAILURES + 2)
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


def unique(monkeypatch: pytest.MonkeyPatch | None = None) -> list[str]:
    """Return names of a socket that no other test has; given a patch, a process of this user then is of another one."""
    names = names_of(b"token", str(uuid4()))
    if monkeypatch is not None:
        monkeypatch.setattr("posix.getuid", lambda: os.getuid() + 1)
    return names


@contextmanager
def listening(name: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as found:
        found.bind(name)
        found.listen()
        yield found


def test_no_other_user_stops_the_report_of_a_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    endings, sent = unique(monkeypatch), []
    with listening(unique()[0]) as notice, socket.socket(socket.AF_UNIX) as other:

        def send(operation: str, _: list[int]) -> dict[str, object] | None:
            sent.append(operation)
            if len(sent) == 1:
                other.connect(endings[0])
                return None
            return {}

        report(send, cast("_socket.socket", notice), local_sockets, endings)
    assert sent == [END, END]


def test_no_other_user_delays_a_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    names = unique(monkeypatch)
    monkeypatch.setattr("select.poll", raises)
    with listening(names[0]):
        hook_client._await_report(names)


def raises() -> None:
    raise AssertionError("it waits")


def test_a_socket_has_the_first_name_that_no_process_of_another_user_has(monkeypatch: pytest.MonkeyPatch) -> None:
    names = unique()
    with listening(names[0]):
        assert local_sockets.taken(names) == (None, True)  # a process of this user
    names = unique(monkeypatch)
    with ExitStack() as stack:
        for at in range(NAMES):
            stack.enter_context(listening(names[at]))
            held, is_there = local_sockets.taken(names)
            assert not is_there
            if at + 1 == NAMES:
                assert held is None
            else:
                assert held is not None
                assert held.getsockname() == names[at + 1].encode()
                held.close()


def test_a_name_at_which_no_process_listens_is_looked_at_again_and_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    names = unique()
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(names[0])
        held, _ = local_sockets.taken(names)
        assert held is not None
        assert held.getsockname() == names[1].encode()
        held.close()
        monkeypatch.setattr("worldprotocol.agents.hooks.local_sockets.time.sleep", lambda _: silent.listen())
        assert local_sockets.taken(names) == (None, True)


def test_no_process_without_the_token_knows_the_names_of_a_guard(server: FakeServer) -> None:
    with running(server) as agent, ExitStack() as stack:
        of_session = ("claude-code", server.address, "main", agent.session)
        for secret in (b"", b"wp1_another"):
            for name in names_of(secret, hook_client.GUARD, *of_session):
                stack.enter_context(listening(name))
        agent.hook()
        guard_of(agent)


def test_hooks_leave_no_word_with_the_guard_unless_the_session_ended() -> None:
    names = unique()
    with listening(names[0]) as notice:
        found = []
        for word in (b"", b"x", ENDED):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(names[0])
                peer.send(word) if word else None
                peer.shutdown(socket.SHUT_WR)
                found.append(_is_notified(cast("_socket.socket", notice), local_sockets))
    assert found == [False, False, True]


def is_waiting(agent: Agent, count: int) -> bool:
    """Return whether so many hooks of an agent wait for the report of a guard: they are connected to its socket."""
    of_session = ("claude-code", agent.place.server, agent.place.realm, agent.session)
    [name, *_] = names_of(b"wp1_token", "ending", *of_session)
    sockets = Path("/proc/net/unix").read_text().splitlines()
    return len([one for one in sockets if one.endswith(name[1:])]) == 1 + count


class Script:
    """Polls that are answered in order: each takes a time, in seconds, and makes descriptors ready."""

    def __init__(self, patch: pytest.MonkeyPatch, *answers: tuple[float, list[int]]) -> None:
        self.seconds, self.answers = Monotonic(), iter(answers)
        patch.setattr("worldprotocol.agents.hooks.session_guard.time.monotonic", self.seconds)
        patch.setattr("worldprotocol.agents.hooks.session_guard.select.poll", lambda: self)

    def register(self, *_: int) -> None:
        """Take a descriptor."""

    def poll(self, _: float) -> list[tuple[int, int]]:
        """Return what is ready after the next time."""
        seconds, ready = next(self.answers)
        self.seconds.seconds += seconds
        return [(one, 1) for one in ready]


AGENT_HANDLE = 1_000


@pytest.mark.parametrize(("stopped_s", "ended_s"), [(2.0, 7.0), (600.0, 5.0)])
def test_the_end_of_an_agent_while_its_guard_was_stopped_is_not_later_than_it_was_seen(
    monkeypatch: pytest.MonkeyPatch, stopped_s: float, ended_s: float
) -> None:
    script = Script(monkeypatch, (0.0, []), (5.0, []), (stopped_s, [AGENT_HANDLE]))
    begun = script.seconds()
    with listening(unique()[0]) as notice:
        ended = look_after(AGENT_HANDLE, cast("_socket.socket", notice), lambda *_: {}, local_sockets)
    assert ended == begun + ended_s


def test_a_guard_that_was_stopped_renews_at_the_server_that_holds_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    script, sent = Script(monkeypatch, (0.0, []), (600.0, []), (0.0, [AGENT_HANDLE])), []

    def send(operation: str, _: list[int]) -> dict[str, object]:
        sent.append(operation)
        return {"elsewhere": ["s"]} if len(sent) in (2, 3) else {}

    with listening(unique()[0]) as notice:
        ended = look_after(AGENT_HANDLE, cast("_socket.socket", notice), send, local_sockets)
    assert (sent, ended) == ([RENEW] * 4, script.seconds())


@pytest.mark.parametrize("refusal", [REFUSED, None])
def test_a_server_that_refuses_is_passed_over_for_others_in_the_same_round(refusal: dict[str, object] | None) -> None:
    elsewhere: dict[str, object] = {"elsewhere": ["s"]}
    answers: list[dict[str, object] | None] = [refusal, elsewhere, refusal, {}]
    sent = []

    def send(operation: str, _: list[int]) -> dict[str, object] | None:
        sent.append(operation)
        return answers[len(sent) - 1]

    assert renew(send, -1, None) is not None
    assert sent == [RENEW] * 4
    sent.clear()
    answers[:] = [refusal] * FAILURES
    assert renew(send, -1, None) is None
    assert sent == [RENEW] * FAILURES
    sent.clear()
    answers[:] = [*[elsewhere] * ATTEMPTS, refusal, elsewhere, {}]
    assert renew(send, -1, None) is not None
    assert sent == [RENEW] * ATTEMPTS + [MOVE] * 3


def test_a_report_that_a_server_refuses_is_made_at_another_one() -> None:
    answers, sent = [REFUSED, REFUSED, {}], []

    def send(operation: str, _: list[int]) -> dict[str, object]:
        sent.append(operation)
        return answers[len(sent) - 1]

    with listening(unique()[0]) as notice:
        report(send, cast("_socket.socket", notice), local_sockets, unique())
    assert sent == [END] * 3


@pytest.mark.slow
def test_a_guard_that_was_stopped_goes_on(server: FakeServer) -> None:
    with running(server) as agent:
        agent.hook()
        guard = guard_of(agent)
        for _ in range(2):
            guard.suspend()
            until(lambda: guard.status() == psutil.STATUS_STOPPED)
            time.sleep(6)  # it misses a renewal
            before = len(server.of("sessions:renew"))
            guard.resume()
            server.wait_for(lambda before=before: len(server.of("sessions:renew")) > before)
        assert (guard_of(agent).pid, ends(server)) == (guard.pid, [])
        agent.kill()
        server.wait_for(lambda: ends(server))


def test_renewals_go_on_until_they_reach_the_server_that_holds_the_session(server: FakeServer) -> None:
    elsewhere = http(200, b'{"renewed": 1, "elsewhere": ["s"]}')
    server.session_answer = elsewhere
    with running(server) as agent:
        agent.hook()
        server.wait_for(lambda: len(server.of("sessions:renew")) == ATTEMPTS + 1)
        sent = [one.json for one in server.of("sessions:renew")]
        assert sent == [{"sessions": [agent.session]}] * ATTEMPTS + [{"sessions": [agent.session], "moves": True}]


def test_an_operation_that_no_server_has_is_soon_given_up(server: FakeServer) -> None:
    server.session_answer = http(404, b"{}")
    with running(server) as agent:
        agent.hook()
        agent.kill()
        until(lambda: not guards(agent.session))
        assert len(ends(server)) == FAILURES


def test_the_agent_is_the_process_that_runs_the_shells_of_a_hook(server: FakeServer) -> None:
    with running(server) as agent:
        event = {"hook_event_name": "PreToolUse", "session_id": agent.session}
        command = f"bash -lc {shlex.quote(agent.place.command('claude-code', is_before=True))}; exit $?"
        assert [agent.run(command, event)["code"] for _ in range(2)] == [0, 0]
        guard_of(agent)
        assert ends(server) == []  # the shells have ended
        agent.kill()
        server.wait_for(lambda: ends(server))
