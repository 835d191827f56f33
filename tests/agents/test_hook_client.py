"""The client of installed hooks: what it imports, what blocks a call, and that a call ends with its caller."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.agents.fake_realm_server import ALLOW, CUT, HELD, FakeServer, fake_server, http
from tests.remote.test_command_client import certificate
from tests.support.patience import PATIENCE_S
from worldprotocol.agents import hook_client

PROGRAM = [sys.executable, "-I", "-S", hook_client.FILE]
BEFORE: dict[str, Any] = {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {}}
AFTER: dict[str, Any] = {**BEFORE, "hook_event_name": "PostToolUse"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FakeServer]:
    with fake_server(tmp_path / "sock") as running:
        yield running


def words(server: FakeServer, client: str = "claude-code", *more: str) -> list[str]:
    return [*PROGRAM, client, "--server", server.address, "--realm", "main", *more]


def variables(token: str | None = "wp1_token") -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WORLDCTL_")}
    return kept | ({} if token is None else {"WORLDCTL_TOKEN": token})


def call(
    server: FakeServer, event: Any, *more: str, client: str = "claude-code", token: str | None = "wp1_token"
) -> subprocess.CompletedProcess[str]:
    given = event if isinstance(event, str) else json.dumps(event)
    command = words(server, client, *more)
    return subprocess.run(command, input=given, capture_output=True, text=True, env=variables(token), check=False)


def test_an_answer_is_printed_and_the_request_has_the_token_and_the_place_of_the_hook(server: FakeServer) -> None:
    done = call(server, BEFORE, "--program", "/a b/worldctl")
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, ALLOW, "")
    [asked] = server.asked
    assert asked.path == "/v1/realms/main/hooks/claude-code"
    assert asked.json == BEFORE
    assert asked.headers["authorization"] == "Bearer wp1_token"
    assert asked.headers["wp-hook-program"] == "%2Fa%20b%2Fworldctl"
    assert asked.headers["wp-hook-server"].startswith("unix%3A%2F")
    assert "wp-hook-guarded" not in asked.headers  # it has no session


@pytest.mark.parametrize("name", ["sock", None])
def test_only_built_in_and_extension_modules_are_imported(tmp_path: Path, name: str | None) -> None:
    def loaded(command: list[str], given: str) -> set[str]:
        command = [command[0], "-X", "importtime", *command[1:]]
        done = subprocess.run(command, input=given, capture_output=True, text=True, env=variables(), check=True)
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "import time:" in line}

    bare = loaded([sys.executable, "-I", "-S", "-c", "pass"], "")
    with fake_server(None if name is None else tmp_path / name) as server:
        more = loaded(words(server), json.dumps(BEFORE)) - bare
    assert {"_socket", "select"} <= more
    found = {one: importlib.util.find_spec(one) for one in more}
    assert [one for one, spec in found.items() if spec is None or not is_extension(spec.origin)] == []


def is_extension(origin: str | None) -> bool:
    return origin in ("built-in", "frozen") or (origin is not None and origin.endswith(".so"))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (http(200, b""), "no JSON"),
        (http(200, b"{}"), "something else than a decision"),
        (http(200, b"[]"), "no JSON object"),
        (http(200, json.dumps(ALLOW).encode() + b" {}"), "no JSON object"),
        (http(200, json.dumps(ALLOW).encode()[:-1]), ""),
        (http(204, b""), "no JSON"),
        (http(302, json.dumps(ALLOW).encode()), "answered 302"),
        (http(500, json.dumps(ALLOW).encode()), "answered 500"),
        (http(403, b'{"detail": "The actor may not act.", "code": "FORBIDDEN"}'), "The actor may not act."),
        (http(200, json.dumps({**ALLOW, "more": "x" * 1_100_000}).encode()), "longer than 1 MB"),
        (http(200, json.dumps(ALLOW).encode(), length=10_000), "ended before the answer"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "something else than HTTP"),
        (CUT, "ended before the answer"),
    ],
)
def test_everything_but_a_decision_blocks_with_one_sentence(server: FakeServer, answer: bytes, said: str) -> None:
    server.answer = answer
    done = call(server, BEFORE)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("The realm could not be asked, so this is blocked: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "event", ["", "not JSON", "[]", '{"a": 1', '{"hook_event_name": "PreToolUse"} x', "[" * 100_000]
)
def test_an_event_that_cannot_be_read_blocks(server: FakeServer, event: str) -> None:
    done = call(server, event)
    assert (done.returncode, done.stdout, server.asked) == (2, "", [])
    assert "so this is blocked" in done.stderr


def test_a_server_that_is_away_blocks_a_call_and_loses_a_report(server: FakeServer, tmp_path: Path) -> None:
    server.address = f"unix:{tmp_path}/none"
    done = call(server, BEFORE)
    assert (done.returncode, "no server answers" in done.stderr) == (2, True)
    done = call(server, AFTER)
    assert (done.returncode, "so this is not recorded" in done.stderr) == (1, True)


def test_a_server_that_does_not_answer_in_time_blocks(server: FakeServer) -> None:
    server.answer = HELD
    done = call(server, BEFORE, "--time-s", "1")
    assert (done.returncode, "did not answer in time" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    "address", ["http://other.example", "http:/127.0.0.1", "127.0.0.1:1", "unix:", "http://[::1", ""]
)
def test_an_address_to_which_no_token_goes_blocks(server: FakeServer, address: str) -> None:
    command = [*PROGRAM, "claude-code", "--server", address, "--realm", "main"]
    done = subprocess.run(
        command, input=json.dumps(BEFORE), capture_output=True, text=True, env=variables(), check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "so this is blocked" in done.stderr


def test_the_token_is_that_of_the_file_in_each_form_that_is_printed(server: FakeServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    for text, sent in (("wp1_a\n", "Bearer wp1_a"), ("wp1_b\ntoken 1 of claude, for 90 days\n", "Bearer wp1_b")):
        file.write_text(text)
        assert call(server, BEFORE, "--token-file", str(file)).returncode == 0
        assert server.asked[-1].headers["authorization"] == sent
    for text in ("", "two words\n", "a\nb\n", "wp1_\xfc\n", "wp1_x\r\nInjected: yes\n"):
        file.write_text(text)
        done = call(server, BEFORE, "--token-file", str(file))
        assert (done.returncode, "no token" in done.stderr) == (2, True), text
    file.unlink()
    assert "cannot be read" in call(server, BEFORE, "--token-file", str(file)).stderr
    assert call(server, BEFORE, token=None).returncode == 0
    assert "authorization" not in server.asked[-1].headers
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    ("client", "answer", "code", "said"),
    [
        ("claude-code", {"hookSpecificOutput": {**ALLOW["hookSpecificOutput"], "permissionDecision": "deny"}}, 0, ""),
        ("codex", {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}, 0, ""),
        ("gemini", {"decision": "allow"}, 0, ""),
        ("gemini", {"decision": "deny", "reason": "no"}, 2, "no\n"),
        ("cursor", {"permission": "allow"}, 0, ""),
        ("cursor", {"permission": "deny", "agent_message": "not this"}, 2, "not this\n"),
    ],
)
def test_a_decision_is_passed_on_in_the_form_of_the_agent(
    server: FakeServer, client: str, answer: dict[str, Any], code: int, said: str
) -> None:
    server.answer = http(200, json.dumps(answer).encode())
    name = {"gemini": "BeforeTool", "cursor": "preToolUse"}.get(client, "PreToolUse")
    done = call(server, {**BEFORE, "hook_event_name": name}, client=client)
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (code, answer, said)


def test_an_event_whose_session_is_half_a_surrogate_pair_is_passed_on(server: FakeServer) -> None:
    done = call(server, '{"hook_event_name": "PreToolUse", "session_id": "\\ud800"}')
    assert (done.returncode, json.loads(done.stdout)) == (0, ALLOW)


def test_an_answer_in_chunks_is_read(server: FakeServer) -> None:
    body = json.dumps(ALLOW).encode()
    pieces = b"".join(f"{len(one):x}\r\n".encode() + one + b"\r\n" for one in (body[:7], body[7:], b""))
    server.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces
    assert json.loads(call(server, BEFORE).stdout) == ALLOW


def test_a_server_with_an_unknown_certificate_gets_no_token(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path))
    with fake_server(None, tls=context) as server:
        server.answer = http(200, json.dumps({**ALLOW, "more": "x" * 200_000}).encode())
        done = call(server, BEFORE)
        assert (done.returncode, "certificate verify failed" in done.stderr, server.asked) == (2, True, [])
        known = variables() | {"SSL_CERT_FILE": str(tmp_path / "server.pem")}
        given = json.dumps(BEFORE)
        done = subprocess.run(words(server), input=given, capture_output=True, text=True, env=known, check=False)
        assert (done.returncode, json.loads(done.stdout)["more"]) == (0, "x" * 200_000)


def test_a_lost_connection_is_made_again_with_the_same_event(server: FakeServer) -> None:
    server.cuts = 2
    done = call(server, {**BEFORE, "tool_use_id": "toolu_1"})
    assert (done.returncode, json.loads(done.stdout)) == (0, ALLOW)
    assert len({one.body for one in server.asked}) == 1
    assert len(server.asked) == 3


def waiting(server: FakeServer, command: list[str], event: Any = BEFORE) -> subprocess.Popen[bytes]:
    """Start a hook whose call the server holds."""
    before = len(server.asked)
    started = subprocess.Popen(
        ["env", "--default-signal=HUP", *command],  # also where the tests run under nohup
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=variables(),
    )
    assert started.stdin is not None
    started.stdin.write(json.dumps(event).encode())
    started.stdin.close()
    server.wait_for(lambda: len(server.asked) > before)
    return started


def ended(process: subprocess.Popen[bytes]) -> int:
    code = process.wait(PATIENCE_S)
    for one in (process.stdout, process.stderr):
        assert one is not None
        one.close()
    return code


def test_a_call_ends_where_nothing_reads_the_answer(server: FakeServer) -> None:
    server.answer = HELD
    hook = waiting(server, words(server))
    assert hook.stdout is not None
    hook.stdout.close()
    server.wait_for(lambda: server.left == 1)
    assert ended(hook) == 2


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_a_call_ends_with_the_shell_that_runs_it(server: FakeServer, sent: signal.Signals) -> None:
    server.answer = HELD
    line = " ".join(words(server))
    shell = waiting(server, ["sh", "-c", f"{line} || exit 2"])
    [hook] = psutil.Process(shell.pid).children()
    shell.send_signal(sent)
    server.wait_for(lambda: server.left == 1)
    hook.wait(PATIENCE_S)
    ended(shell)


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_hook_that_is_ended_ends_its_call_and_blocks(server: FakeServer, sent: signal.Signals) -> None:
    server.answer = HELD
    shell = waiting(server, ["sh", "-c", f"{' '.join(words(server))} || exit 2"])
    [hook] = psutil.Process(shell.pid).children()
    hook.send_signal(sent)
    server.wait_for(lambda: server.left == 1)
    assert ended(shell) == 2


def test_a_report_is_delivered_after_the_agent_ended(server: FakeServer) -> None:
    agent = 'import subprocess, sys; p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE); p.stdin.write(b\'{"hook_event_name": "PostToolUse"}\')'  # noqa: E501
    done = subprocess.run([sys.executable, "-c", agent, *words(server)], env=variables(), check=True)
    assert done.returncode == 0
    server.wait_for(lambda: len(server.of("/hooks/claude-code")) == 1)


def test_the_full_program_does_the_same(server: FakeServer) -> None:
    command = [sys.executable, "-m", "worldprotocol", "hooks", "call", "claude-code", "--server", server.address]
    done = subprocess.run(
        command, input=json.dumps(BEFORE), capture_output=True, text=True, env=variables(), check=False
    )
    assert (done.returncode, json.loads(done.stdout)) == (0, ALLOW)
    server.answer = HELD
    hook = waiting(server, command)
    assert hook.stdout is not None
    hook.stdout.close()
    server.wait_for(lambda: server.left == 1)
    assert ended(hook) == 2
