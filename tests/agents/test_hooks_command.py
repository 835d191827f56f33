"""`worldctl hooks`: settings of agents are extended and restored, and a hook that cannot ask blocks the call."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil
import pytest

from tests.agents.guarded import Agent, passed_on
from tests.agents.hooked import hooked, proposals
from tests.cli.forked import run
from tests.cli.realm import COMMAND, ROOT, environment
from tests.server.served import Served
from worldprotocol.agents import hook_client

pytestmark = pytest.mark.slow

FOREIGN: dict[str, Any] = {
    "permissions": {"allow": ["Bash(ls)"]},
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "say"}]}]},
}


def worldctl(*words: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    code, out, err = run([*words], ROOT, environment() | variables, given.encode())
    return subprocess.CompletedProcess(words, code, out.decode(), err.decode())


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("hooks")) as running:
        yield running


def install(served: Served, client: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Install hooks that ask the server of a realm, in its folder."""
    config = ("--config", str(served.place.folder / "world.toml"))
    return worldctl(*config, "hooks", "install", client, "--server", served.url, *words, **variables)


def test_requests_in_place_of_commands_are_those_of_claude_code_and_block_when_they_fail(
    served: Served, tmp_path: Path
) -> None:
    target = tmp_path / ".claude" / "settings.json"
    target.parent.mkdir()
    target.write_text(json.dumps(FOREIGN))
    done = install(served, "claude-code", "--project", str(tmp_path), "--http")
    assert done.returncode == 0, done.stderr
    settings = json.loads(target.read_text())
    assert settings["permissions"] == FOREIGN["permissions"]
    assert settings["hooks"]["Stop"] == FOREIGN["hooks"]["Stop"]
    assert settings["hooks"]["PreToolUse"] == [
        {
            "matcher": "*",
            "hooks": [
                {
                    "type": "http",
                    "url": f"{served.url}/v1/realms/main/hooks/claude-code",
                    "headers": {
                        "Authorization": "Bearer $WORLDCTL_TOKEN",
                        "Wp-Hook-Server": quote(served.url, safe=""),
                        "Wp-Hook-Program": "worldctl",
                    },
                    "allowedEnvVars": ["WORLDCTL_TOKEN"],
                    "timeout": 600,
                    "onFailure": "block",
                }
            ],
        }
    ]
    assert worldctl("hooks", "status", "--project", str(tmp_path)).returncode == 0
    again = install(served, "claude-code", "--project", str(tmp_path))
    assert again.returncode == 0
    replaced = json.loads(target.read_text())
    assert set(settings["hooks"]) == set(replaced["hooks"])
    assert "http" not in {one["type"] for one in replaced["hooks"]["PreToolUse"][0]["hooks"]}
    assert worldctl("hooks", "uninstall", "claude-code", "--project", str(tmp_path)).returncode == 0
    assert json.loads(target.read_text()) == FOREIGN


@pytest.mark.parametrize(
    "words",
    [
        ("codex", "--http"),
        ("git", "--http"),
        ("claude-code", "--http", "--token-file", "token"),
        ("claude-code", "--http", "--server", "unix:/run/realm.sock"),
    ],
)
def test_requests_are_refused_where_an_agent_cannot_send_them(tmp_path: Path, words: tuple[str, ...]) -> None:
    server = () if "--server" in words else ("--server", "http://127.0.0.1:8437")
    done = worldctl("hooks", "install", *words, *server, "--project", str(tmp_path))
    assert (done.returncode, "--http goes with claude-code" in done.stderr) == (2, True), done
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "cursor"])
def test_agents_run_the_client_of_hooks_which_blocks_however_it_fails(
    served: Served, tmp_path: Path, client: str
) -> None:
    done = install(served, client, "--project", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    target = Path(json.loads(done.stdout)["settings"])
    settings = json.loads(target.read_text())
    start = shlex.join([sys.executable, "-I", "-S", hook_client.FILE])
    for one in commands_of(settings):
        assert f"{start} {client} --server {served.url} --realm main" in one
    [command] = {one for one in commands_of(settings) if "||" in one}
    assert command.endswith("exit 2; }'")
    for there in (sys.executable, hook_client.FILE):  # as if it were uninstalled
        failing = command.replace(there, f"/nonexistent{there}")
        blocked = subprocess.run(["sh", "-c", failing], capture_output=True, text=True, check=False)
        assert (blocked.returncode, blocked.stderr != "") == (2, True), blocked
    again = install(served, client, "--project", str(tmp_path))
    assert again.returncode == 0
    assert json.loads(target.read_text()) == settings
    listed = json.loads(worldctl("hooks", "status", "--project", str(tmp_path), "--json").stdout)
    assert [one["agent"] for one in listed if one["events"]] == [client]
    target.write_text(target.read_text().replace(hook_client.FILE, "/gone/worldprotocol/agents/hook_client.py"))
    status = worldctl("hooks", "status", "--project", str(tmp_path))
    assert (status.returncode, "does not exist; install them again" in status.stderr) == (1, True)
    assert worldctl("hooks", "uninstall", client, "--project", str(tmp_path)).returncode == 0
    assert "worldprotocol" not in target.read_text()


def commands_of(settings: Any) -> list[str]:
    """Return the texts of all members ``command``."""
    if isinstance(settings, list):
        return [text for one in settings for text in commands_of(one)]
    if not isinstance(settings, dict):
        return []
    own = [settings["command"]] if isinstance(settings.get("command"), str) else []
    return [*own, *(text for one in settings.values() for text in commands_of(one))]


@pytest.mark.parametrize("text", ["{ // a comment\n}", '{"hooks": [1]}', '{"hooks": {"BeforeTool": {"a": 1}}}'])
def test_settings_that_cannot_be_read_are_not_overwritten(served: Served, tmp_path: Path, text: str) -> None:
    target = tmp_path / ".gemini" / "settings.json"
    target.parent.mkdir()
    target.write_text(text)
    done = install(served, "gemini", "--project", str(tmp_path))
    assert done.returncode != 0
    assert "nothing was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert target.read_text() == text


def test_branches_are_for_git_only(tmp_path: Path) -> None:
    done = worldctl("hooks", "install", "gemini", "--project", str(tmp_path), "--branch", "main")
    assert (done.returncode, "--branch goes with git." in done.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_settings_that_are_a_link_stay_one(served: Served, tmp_path: Path) -> None:
    kept, target = tmp_path / "dotfiles.json", tmp_path / ".gemini" / "settings.json"
    kept.write_text('{"theme": "dark"}')
    target.parent.mkdir()
    target.symlink_to("../dotfiles.json")
    assert install(served, "gemini", "--project", str(tmp_path)).returncode == 0
    assert target.is_symlink()
    assert {"theme", "hooks"} == set(json.loads(kept.read_text()))


def test_a_folder_of_agents_that_does_not_exist_is_said_at_the_start(tmp_path: Path) -> None:
    assert worldctl("init", str(tmp_path), "--template", "coding-agents").returncode == 0
    command = [*COMMAND, "--config", str(tmp_path / "world.toml"), "serve", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment()) as server:
        assert server.stderr is not None
        said = server.stderr.readline()
        server.terminate()
    assert f"[agents] root: there is no folder {tmp_path}/project" in said


def test_a_server_on_another_machine_needs_tls(tmp_path: Path) -> None:
    words = ("--project", str(tmp_path), "--server", "http://other.example")
    assert worldctl("hooks", "install", "gemini", *words).returncode != 0


@pytest.mark.parametrize(
    ("client", "name", "version", "is_refused"),
    [
        ("claude-code", "claude", "2.1.294 (Claude Code)", True),
        ("claude-code", "claude", "2.1.295 (Claude Code)", False),
        ("claude-code", "claude", "3.0.0 (Claude Code)", False),
        ("claude-code", "claude", "?", True),
        ("codex", "codex", "codex-cli 0.130.0", True),
        ("codex", "codex", "codex-cli 0.131.0", False),
        ("gemini", "gemini", "0.25.0", True),
        ("gemini", "gemini", "0.26.0-preview.1", True),
        ("gemini", "gemini", "0.26.0", False),
        ("gemini", "gemini", "", True),
        ("cursor", "cursor", "2.3.41\\n2ca3\\nx64", True),
        ("cursor", "cursor", "2.4.0\\n2ca3\\nx64", False),
        ("cursor", "cursor", "version?", True),
        ("cursor", "cursor-agent", "2026.01.21-d239e66", True),
        ("cursor", "cursor-agent", "2026.01.22-d239e66", False),
    ],
)
def test_versions_whose_hooks_let_a_call_pass_are_refused(
    served: Served, tmp_path: Path, client: str, name: str, version: str, *, is_refused: bool
) -> None:
    program = tmp_path / "bin" / name
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nprint('{version}')\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = install(served, client, "--project", str(tmp_path), PATH=path)
    assert ("HOOKS_TOO_OLD" in done.stderr) is is_refused
    assert (tmp_path / f".{name.removesuffix('-agent')}").exists() is not is_refused


def gemini(name: str, served: Served, **members: Any) -> dict[str, Any]:
    project = served.place.folder.parent / "project"
    event = {"session_id": "g-1", "cwd": str(project), "hook_event_name": name, "timestamp": "2026-11-23T09:00:00Z"}
    return event | members


@pytest.fixture(scope="module")
def agent(served: Served) -> Iterator[Agent]:
    """Return a process that runs hooks, and lives longer than its calls."""
    started = Agent(served.url)
    yield started
    started.close()


def test_gemini_calls_are_judged_and_reported(served: Served, agent: Agent) -> None:
    edit = {"tool_name": "replace", "tool_input": {"file_path": "src/app.py", "old_string": "1", "new_string": "2"}}
    for _ in range(2):  # each call of its own, though they are equal
        before = passed_on(served, agent, "gemini", gemini("BeforeTool", served, **edit))
        assert (before.code, json.loads(before.out)) == (0, {"decision": "allow"}), before.err
        assert proposals(served)[-1]["status"] == "executing"
        after = passed_on(
            served, agent, "gemini", gemini("AfterTool", served, **edit, tool_response={"llmContent": "ok"})
        )
        assert (after.code, json.loads(after.out)) == (0, {})
        assert proposals(served)[-1]["status"] == "completed"
    done = [one for one in proposals(served) if one["intent"]["body"]["input"].get("tool") == "replace"]
    assert len(done) == 2
    guarded = {"tool_name": "write_file", "tool_input": {"file_path": ".gemini/settings.json", "content": "{}"}}
    refused = passed_on(served, agent, "gemini", gemini("BeforeTool", served, **guarded))
    assert refused.code == 2
    assert json.loads(refused.out)["decision"] == "deny"
    assert "changed by people only" in refused.err


def test_cursor_calls_are_judged_and_reported(served: Served, agent: Agent) -> None:
    root = str(served.place.folder.parent / "project")
    common = {"conversation_id": "c-1", "workspace_roots": [root], "tool_use_id": "call-7"}
    given = {"tool_name": "Read", "tool_input": {"file_path": f"{root}/src/lib.py"}}
    before = passed_on(served, agent, "cursor", {**common, **given, "hook_event_name": "preToolUse"})
    assert (before.code, json.loads(before.out)) == (0, {"permission": "allow"}), before.err
    after = {**common, **given, "hook_event_name": "postToolUse", "tool_output": "clean"}
    assert passed_on(served, agent, "cursor", after).code == 0
    assert proposals(served)[-1]["status"] == "completed"
    edit = {"tool_name": "Write", "tool_input": {"file_path": f"{root}/.cursor/hooks.json"}, "tool_use_id": "call-8"}
    refused = passed_on(served, agent, "cursor", {**common, **edit, "hook_event_name": "preToolUse"})
    assert refused.code == 2
    assert json.loads(refused.out)["permission"] == "deny"


def test_a_patch_of_codex_leases_the_files_that_it_names(served: Served, agent: Agent) -> None:
    patch = "*** Begin Patch\n*** Update File: src/app.py\n@@\n-x\n+y\n*** Add File: src/more.py\n+z\n*** End Patch"
    event = {
        "session_id": "x-1",
        "cwd": str(served.place.folder.parent / "project"),
        "hook_event_name": "PreToolUse",
        "tool_name": "apply_patch",
        "tool_input": {"command": patch},
        "tool_use_id": "call-1",
    }
    before = passed_on(served, agent, "codex", event)
    assert before.code == 0, before.err
    assert json.loads(before.out) == {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}  # no objection
    with served.place.realm() as realm:
        leased = {one.triple.resource.text for one in realm.realm().klis.leases.values()}
    assert leased == {"FILE:/src/app.py", "FILE:/src/more.py"}
    passed_on(served, agent, "codex", {**event, "hook_event_name": "PostToolUse", "tool_response": "ok"})
    assert proposals(served)[-1]["status"] == "completed"


def test_a_failed_patch_of_codex_does_not_lock_its_file(served: Served, agent: Agent) -> None:
    patch = "*** Begin Patch\n*** Update File: src/lib.py\n@@\n-{}\n+y\n*** End Patch"
    event = {
        "session_id": "x-2",
        "cwd": str(served.place.folder.parent / "project"),
        "hook_event_name": "PreToolUse",
        "tool_name": "apply_patch",
    }
    for number in (1, 2):  # the first one fails, which Codex does not report
        call = {"tool_input": {"command": patch.format(number)}, "tool_use_id": f"call-{number}"}
        before = passed_on(served, agent, "codex", event | call)
        assert json.loads(before.out) == {"hookSpecificOutput": {"hookEventName": "PreToolUse"}}, before.out
    again = passed_on(served, agent, "codex", event | call)
    assert json.loads(again.out) == json.loads(before.out)  # the same call
    passed_on(served, agent, "codex", {**event, **call, "hook_event_name": "PostToolUse", "tool_response": "ok"})
    first, second = proposals(served)[-2:]
    assert (first["status"], first["error"]["code"]) == ("failed", "TOOL_OUTCOME_UNKNOWN")
    assert second["status"] == "completed"


class Nonsense(BaseHTTPRequestHandler):
    """Answers everything with what its server was given."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        status, content = self.server.nonsense  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


@pytest.mark.parametrize(
    "nonsense",
    [
        (200, b""),
        (200, b"{}"),
        (200, b"[]"),
        (200, b"allow"),
        (200, b'{"decision"'),
        (500, b"{}"),
        (302, b"{}"),
        (204, b""),
    ],
)
def test_nonsense_in_place_of_an_answer_blocks(nonsense: tuple[int, bytes]) -> None:
    with HTTPServer(("127.0.0.1", 0), Nonsense) as server:
        server.nonsense = nonsense  # type: ignore[attr-defined]
        threading.Thread(target=server.handle_request, daemon=True).start()
        event = '{"hook_event_name": "BeforeTool"}'
        done = worldctl("hooks", "call", "gemini", "--server", f"http://127.0.0.1:{server.server_port}", given=event)
    assert done.returncode == 2, done.stdout
    assert done.stdout == ""
    assert "this is blocked" in done.stderr


def test_a_slow_server_blocks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes the connection, and never answers
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for client, name in (("gemini", "BeforeTool"), ("cursor", "preToolUse"), ("codex", "PreToolUse")):
            words = ("hooks", "call", client, "--server", url, "--time-s", "1")
            done = worldctl(*words, given=json.dumps({"hook_event_name": name}))
            assert (done.returncode, done.stdout) == (2, ""), done
            assert "did not answer in time" in done.stderr


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "cursor"])
def test_a_dry_run_prints_the_settings_and_writes_nothing(served: Served, tmp_path: Path, client: str) -> None:
    done = install(served, client, "--project", str(tmp_path), "--dry-run")
    printed = json.loads(done.stdout)
    assert list(tmp_path.iterdir()) == []
    target = json.loads(install(served, client, "--project", str(tmp_path), "--json").stdout)["settings"]
    assert json.loads(Path(target).read_text()) == printed


def test_codex_is_said_to_skip_hooks_that_are_not_trusted(served: Served, tmp_path: Path) -> None:
    done = install(served, "codex", "--project", str(tmp_path))
    assert "/hooks" in done.stdout + done.stderr


@pytest.mark.parametrize("event", ["", "not JSON", "[]", '{"hook_event_name": "BeforeTool"}'])
def test_an_unreachable_server_and_bad_events_block(event: str) -> None:
    done = worldctl("hooks", "call", "gemini", "--server", "http://127.0.0.1:9", given=event)
    assert (done.returncode, done.stdout) == (2, "")
    assert "so this is blocked: " in done.stderr


def test_a_report_that_is_lost_is_not_said_to_block() -> None:
    event = '{"hook_event_name": "AfterTool"}'
    done = worldctl("hooks", "call", "gemini", "--server", "http://127.0.0.1:9", given=event)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("The realm could not be reached, so this is not recorded; its files stay leased: ")


@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "cursor"])
def test_a_killed_hook_blocks(served: Served, tmp_path: Path, client: str) -> None:
    token = tmp_path / "token"
    token.write_text(served.place.tokens["claude"])
    done = install(served, client, "--project", str(tmp_path), "--token-file", str(token), "--json")
    settings = json.loads(Path(json.loads(done.stdout)["settings"]).read_text())
    [command] = {one for one in commands_of(settings) if "||" in one}
    with subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as hook:  # it waits for its event
        while not (
            started := [
                one
                for one in psutil.Process(hook.pid).children(recursive=True)
                if one.name() != "sh" and hook_client.FILE in one.cmdline()
            ]
        ):
            assert hook.poll() is None
        started[0].kill()
        out, err = hook.communicate()
    assert (hook.returncode, out) == (2, "")
    assert "this is blocked" in err
