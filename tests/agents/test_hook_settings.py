"""What the settings of agents say of hooks: entries of every release are ours, and others switch hooks off."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from worldprotocol.agents.hooks.settings import (
    FORMS,
    HookPlace,
    absent,
    installed,
    is_earlier,
    with_hooks,
    without_hooks,
)
from worldprotocol.agents.hooks.silencing import silencing

BLOCK = '{ [ $? -eq 2 ] || echo "The hook failed, so this is blocked." >&2; exit 2; }'
PROGRAMS = (["worldctl"], ["/srv/venv/bin/worldctl"], ["/srv/my venv/bin/worldctl"], ["/srv/it's/worldctl"])
SERVERS = ("http://127.0.0.1:8437", "https://r.example.com/w", "unix:/run/my realm.sock")
THEIRS = {"type": "command", "command": "echo worldctl hooks"}


def command_entries(client: str) -> list[dict[str, Any]]:
    """Return the entries before a call that releases wrote as commands, in each form that they took."""
    found = []
    for program in PROGRAMS:
        for server in SERVERS:
            for file in ([], ["--token-file", "/srv/my token"]):
                words = [*program, "hooks", "call", client, "--server", server, "--realm", "main", *file]
                line = shlex.join(words)
                found += [
                    {"type": "command", "command": shlex.join(["sh", "-c", f"{line} || {BLOCK}"]), "timeout": 600},
                    {"type": "command", "command": line, "timeout": 60},
                ]
    return found


def client_entries(client: str) -> list[dict[str, Any]]:
    """Return the entries that run the client of hooks, from folders with unusual names too."""
    found = []
    for folder in ("/srv/venv", "/srv/my venv", "/srv/it's"):
        for program in PROGRAMS:
            file = f"{folder}/worldprotocol/agents/hook_client.py"
            words = [f"{folder}/bin/python", "-I", "-S", file, client, "--server", SERVERS[0], "--realm", "main"]
            line = shlex.join([*words, "--program", shlex.join(program)])
            found += [
                {"type": "command", "command": shlex.join(["sh", "-c", f"{line} || {BLOCK}"]), "timeout": 600},
                {"type": "command", "command": line, "timeout": 60},
            ]
    return found


def http_entry(client: str, **headers: str) -> dict[str, Any]:
    """Return an entry that is a request, without more headers as the first release wrote it."""
    return {
        "type": "http",
        "url": f"http://127.0.0.1:8437/v1/realms/main/hooks/{client}",
        "headers": {"Authorization": "Bearer $WORLDCTL_TOKEN", **headers},
        "allowedEnvVars": ["WORLDCTL_TOKEN"],
        "timeout": 600,
        "onFailure": "block",
    }


@pytest.mark.parametrize("client", FORMS)
def test_entries_of_every_release_are_recognised_removed_and_replaced(client: str) -> None:
    form = FORMS[client]
    earlier = command_entries(client) + ([http_entry(client)] if form.takes_http else [])
    present = [*client_entries(client), http_entry(client, **{"Wp-Hook-Server": "x"})]
    for entry in earlier + present:
        listed = [entry, THEIRS] if form.is_flat else [{"matcher": "*", "hooks": [entry, THEIRS]}]
        settings = {"other": 1, "hooks": {form.before: listed}}
        assert installed(client, settings) == [form.before], entry
        left = without_hooks(client, settings)
        assert left["hooks"] == {form.before: [THEIRS] if form.is_flat else [{"matcher": "*", "hooks": [THEIRS]}]}
        again = with_hooks(client, settings, HookPlace("http://127.0.0.1:8437", "main"))
        assert without_hooks(client, again)["hooks"] == left["hooks"]
        assert not is_earlier(client, again)
        assert is_earlier(client, settings) is (entry in earlier)


@pytest.mark.parametrize("client", FORMS)
def test_a_program_of_hooks_that_does_not_exist_is_named(client: str, tmp_path: Path) -> None:
    form = FORMS[client]
    for entry in client_entries(client):
        listed = [entry] if form.is_flat else [{"matcher": "*", "hooks": [entry]}]
        assert str(absent(client, {"hooks": {form.before: listed}})).endswith("/bin/python")
    place = HookPlace("http://127.0.0.1:8437", "main", "/srv/token", ("/srv/bin/worldctl",))
    assert absent(client, with_hooks(client, {}, place)) is None
    elsewhere = replace(place, interpreter=str(tmp_path / "python"))
    assert absent(client, with_hooks(client, {}, elsewhere)) == str(tmp_path / "python")


def silenced(client: str, root: Path, file: str, content: Any) -> list[str]:
    """Write one file below a folder, and return the settings that are found."""
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return [one.setting for one in silencing(client, root / "project", root / "home", system=root / "system")]


CLAUDE = (
    "project/.claude/settings.json",
    "project/.claude/settings.local.json",
    "home/.claude/settings.json",
    "system/etc/claude-code/managed-settings.json",
    "system/etc/claude-code/managed-settings.d/10-all.json",
)


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GEMINI_CLI_SYSTEM_SETTINGS_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("file", CLAUDE)
@pytest.mark.parametrize("name", ["disableAllHooks", "allowManagedHooksOnly"])
def test_claude_code_settings_that_switch_hooks_off_are_found(tmp_path: Path, file: str, name: str) -> None:
    assert silenced("claude-code", tmp_path, file, {name: True}) == [f"{name} = true"]
    assert silenced("claude-code", tmp_path, file, {name: False}) == []
    assert silenced("claude-code", tmp_path, file, '{ // a comment\n"' + name + '": true }') != []
    assert silenced("claude-code", tmp_path, file, "{ // a comment\n}") == []


@pytest.mark.parametrize(
    ("file", "text", "found"),
    [
        ("project/.codex/config.toml", "[features]\nhooks = false", ["features.hooks = false"]),
        ("home/.codex/config.toml", "features.codex_hooks = false", ["features.codex_hooks = false"]),
        ("home/.codex/config.toml", "[profiles.x.features]\nhooks = false", ["profiles.x.features.hooks = false"]),
        (
            "system/etc/codex/requirements.toml",
            "allow_managed_hooks_only = true",
            ["allow_managed_hooks_only = true"],
        ),
        ("system/etc/codex/requirements.toml", "[features]\nhooks = false", ["features.hooks = false"]),
        ("home/.codex/config.toml", "[features]\nhooks = true", []),
    ],
)
def test_codex_settings_that_switch_hooks_off_are_found(tmp_path: Path, file: str, text: str, found: list[str]) -> None:
    assert silenced("codex", tmp_path, file, text) == found


@pytest.mark.parametrize(
    "file",
    ["project/.gemini/settings.json", "home/.gemini/settings.json", "system/etc/gemini-cli/settings.json"],
)
def test_gemini_settings_that_switch_hooks_off_are_found(tmp_path: Path, file: str) -> None:
    off = {"hooksConfig": {"enabled": False}}
    assert silenced("gemini", tmp_path, file, off) == ["hooksConfig.enabled = false"]
    assert silenced("gemini", tmp_path, file, {"tools": {"enableHooks": False}}) == ["tools.enableHooks = false"]
    own = {"hooksConfig": {"enabled": True, "disabled": ["lint", "worldctl hooks call gemini"]}}
    assert len(silenced("gemini", tmp_path, file, own)) == 1
    assert silenced("gemini", tmp_path, file, {"hooksConfig": {"enabled": True, "disabled": ["lint"]}}) == []


def test_agents_with_folders_of_their_own_are_asked_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "elsewhere"))
    assert silenced("claude-code", tmp_path, "elsewhere/settings.json", {"disableAllHooks": True}) != []
    monkeypatch.setenv("CODEX_HOME", str(tmp_path / "codex"))
    assert silenced("codex", tmp_path, "codex/config.toml", "features.hooks = false") != []
