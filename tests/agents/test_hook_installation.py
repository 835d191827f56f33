"""Hooks are written only where they hold, and only for a server that was proven to serve the log of world.toml."""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.agents.hooked import hooked
from tests.agents.test_hooks_command import install, worldctl
from tests.server.served import Served
from world.errors import RefusedError
from worldprotocol.cli.commands.agents.installation import check_owner

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with hooked(tmp_path_factory.mktemp("installed")) as running:
        yield running


def config_of(served: Served) -> str:
    return str(served.place.folder / "world.toml")


def is_written(project: Path) -> bool:
    return any((project / name).exists() for name in (".claude/settings.json", ".gemini/settings.json"))


SILENCED = [
    ("claude-code", "project/.claude/settings.local.json", {"disableAllHooks": True}, "disableAllHooks"),
    ("claude-code", "home/.claude/settings.json", {"allowManagedHooksOnly": True}, "allowManagedHooksOnly"),
    ("gemini", "home/.gemini/settings.json", {"hooksConfig": {"enabled": False}}, "hooksConfig.enabled"),
    ("codex", "home/.codex/config.toml", "[features]\nhooks = false\n", "features.hooks"),
]


@pytest.mark.parametrize(("client", "file", "content", "named"), SILENCED)
def test_hooks_that_are_switched_off_are_not_written_and_status_says_it(
    served: Served, tmp_path: Path, client: str, file: str, content: Any, named: str
) -> None:
    project, target = tmp_path / "project", tmp_path / file
    project.mkdir()
    home = {"HOME": str(tmp_path / "home")}
    assert install(served, client, "--project", str(project), **home).returncode == 0
    assert worldctl("hooks", "status", "--project", str(project), **home).returncode == 0
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content if isinstance(content, str) else json.dumps(content))
    status = worldctl("hooks", "status", "--project", str(project), **home)
    assert (status.returncode, named in status.stderr, str(target) in status.stderr) == (1, True, True), status
    listed = json.loads(worldctl("hooks", "status", "--project", str(project), "--json", **home).stdout)
    assert [one["agent"] for one in listed if one["faults"]] == [client]
    shutil.rmtree(project / f".{client.partition('-')[0]}", ignore_errors=True)
    if target.is_relative_to(project):
        target.parent.mkdir()
        target.write_text(json.dumps(content))
    done = install(served, client, "--project", str(project), **home)
    assert (done.returncode, "HOOKS_SILENCED" in done.stderr, named in done.stderr) == (1, True, True), done
    assert not is_written(project)


def test_status_fails_for_a_version_that_became_too_old_and_for_entries_of_an_earlier_release(
    served: Served, tmp_path: Path
) -> None:
    project, program = tmp_path / "project", tmp_path / "bin/gemini"
    project.mkdir()
    program.parent.mkdir()
    assert install(served, "gemini", "--project", str(project)).returncode == 0
    program.write_text(f"#!{sys.executable}\nprint('0.25.0')\n")
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    status = worldctl("hooks", "status", "--project", str(project), PATH=path)
    assert (status.returncode, "is version 0.25.0" in status.stderr) == (1, True)
    assert worldctl("hooks", "status", "--project", str(project)).returncode == 0
    earlier = {"type": "http", "url": "http://127.0.0.1:8437/v1/realms/main/hooks/claude-code"}
    settings = project / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [earlier]}]}}))
    status = worldctl("hooks", "status", "--project", str(project))
    assert (status.returncode, "install them again" in status.stderr) == (1, True)
    assert install(served, "claude-code", "--project", str(project)).returncode == 0
    assert worldctl("hooks", "status", "--project", str(project)).returncode == 0


def test_address_and_realm_are_those_of_the_configuration(served: Served, tmp_path: Path) -> None:
    port = served.url.rpartition(":")[2]
    config = Path(config_of(served))
    text = config.read_text()
    config.write_text(text.replace("[server]\n", f"[server]\nport = {port}\n"))
    try:
        done = worldctl("--config", str(config), "hooks", "install", "gemini", "--project", str(tmp_path), "--json")
    finally:
        config.write_text(text)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["url"] == f"http://127.0.0.1:{port}/v1/realms/main/hooks/gemini"


@pytest.mark.parametrize(
    "address",
    [
        "http://other.example",
        "ftp://127.0.0.1",
        "127.0.0.1:8437",
        "https://a@127.0.0.1",
        "http://127.0.0.1:8437/?x=1",
        "unix:",
    ],
)
def test_an_address_that_is_none_is_refused(served: Served, tmp_path: Path, address: str) -> None:
    for more in ((), ("--dry-run",)):
        words = ("hooks", "install", "gemini", "--project", str(tmp_path), "--server", address, *more)
        done = worldctl("--config", config_of(served), *words)
        assert (done.returncode != 0, "INVALID_ADDRESS" in done.stderr) == (True, True), done
    assert not is_written(tmp_path)


class Impostor(BaseHTTPRequestHandler):
    """Answers the question for the identity, and records what it was sent."""

    def do_GET(self) -> None:
        self.server.seen.append(dict(self.headers))  # type: ignore[attr-defined]
        content: bytes = self.server.content  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        return


@pytest.mark.parametrize(
    "content",
    [
        b'{"name": "main", "logId": "00000000-0000-7000-8000-000000000000"}',
        b"{}",
        b"[]",
        b"no JSON",
        b'{"logId": null}',
    ],
)
def test_another_server_gets_no_token_and_nothing_is_written(served: Served, tmp_path: Path, content: bytes) -> None:
    with HTTPServer(("127.0.0.1", 0), Impostor) as server:
        server.content, server.seen = content, []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        words = ("hooks", "install", "gemini", "--project", str(tmp_path), "--server", url)
        done = worldctl("--config", config_of(served), *words, WORLDCTL_TOKEN=served.place.tokens["claude"])
        server.shutdown()
    assert (done.returncode, "SERVER_NOT_PROVEN" in done.stderr) == (1, True), done
    assert [one.get("Authorization") for one in server.seen] == [None]  # type: ignore[attr-defined]
    assert not is_written(tmp_path)


def test_a_realm_that_the_server_does_not_have_and_a_server_that_is_away_are_refused(
    served: Served, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        away = f"http://127.0.0.1:{free.getsockname()[1]}"
    for words in (("--realm", "other"), ("--server", away)):
        done = install(served, "gemini", "--project", str(tmp_path), *words)
        assert (done.returncode, "SERVER_NOT_PROVEN" in done.stderr) == (1, True), done
    assert not is_written(tmp_path)


def test_without_a_configuration_the_id_of_the_log_is_stated(served: Served, tmp_path: Path) -> None:
    words = ("hooks", "install", "gemini", "--project", str(tmp_path), "--server", served.url)
    assert worldctl(*words).returncode == 2
    other = worldctl(*words, "--log-id", "00000000-0000-7000-8000-000000000000")
    assert (other.returncode, is_written(tmp_path)) == (1, False)
    with served.client(None) as client:
        log_id = client.get("/v1/realms/main/identity").json()["logId"]
    assert worldctl(*words, "--log-id", log_id).returncode == 0


def test_a_socket_of_another_user_is_refused(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = served.place.folder / "world.db.sock"
    if os.getuid() != 0:  # only root gives a socket to another user
        monkeypatch.setattr(os, "getuid", lambda: 65_534)
        with pytest.raises(RefusedError, match="belongs to the user"):
            check_owner(str(own), tmp_path / "world.toml")
        return
    assert install(served, "gemini", "--project", str(tmp_path), "--server", f"unix:{own}").returncode == 0
    shutil.rmtree(tmp_path / ".gemini")
    os.chown(own, 12_345, -1)
    try:
        done = install(served, "gemini", "--project", str(tmp_path), "--server", f"unix:{own}")
    finally:
        os.chown(own, 0, -1)
    assert (done.returncode, "belongs to the user 12345" in done.stderr, is_written(tmp_path)) == (1, True, False), done
