"""Settings of coding agents that name hooks: entries of this engine are added to a document, found in it and removed.

Entries of others stay as they are. An entry is this engine's if its URL ends with ``/hooks/CLIENT`` below
``/v1/realms/``, or if its command runs ``hook_client.py`` or ``worldctl hooks call``, in a shell of its own or not.
This holds for the entries of every release. Earlier ones do not say how they were installed, so that the server cannot
rewrite their commands, or start the whole program; they are replaced when the hooks are installed again.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from worldprotocol.agents import hook_client

__all__ = [
    "FORMS",
    "SAYS_GUARDED",
    "HookPlace",
    "SettingsForm",
    "absent",
    "installed",
    "is_earlier",
    "with_hooks",
    "without_hooks",
]

TIMEOUT_S: Final = 600
"""Time that an agent waits for an answer, in seconds; longer than ``wait_s`` of the section ``[agents]``."""

REPORT_TIMEOUT_S: Final = 60
VARIABLE: Final = "WORLDCTL_TOKEN"
"""Environment variable with the agent's token."""

_BLOCK: Final = '{ [ $? -eq 2 ] || echo "The hook failed, so this is blocked." >&2; exit 2; }'

_OWN_URL: Final = re.compile(r"/v1/realms/[^/]+/hooks/[a-z-]+\Z")
_OWN_COMMAND: Final = re.compile(r"(?:^|[\s/'\"])worldctl['\"]*\s+hooks\s+call\s")
_OWN_CLIENT: Final = re.compile(r"worldprotocol/agents/hook_client\.py['\"]*\s")
_SAYS_SERVER: Final = "Wp-Hook-Server"
"""Header by which an HTTP hook says how it was installed; a command says it itself."""

SAYS_GUARDED: Final = "Wp-Hook-Guarded"
"""Header by which a hook says that its session has a guard, which renews it."""

_PROGRAM: Final = ("worldctl",)


@dataclass(frozen=True, slots=True)
class HookPlace:
    """Where hooks ask.

    Args:
        server: URL of the server, or ``unix:PATH`` of its socket.
        realm: name of the realm there.
        token_file: file with the agent's token; None is the environment variable ``WORLDCTL_TOKEN``.
        program: the words that start ``worldctl``.
        interpreter: the Python that runs hooks.
    """

    server: str
    realm: str
    token_file: str | None = None
    program: tuple[str, ...] = _PROGRAM
    interpreter: str = sys.executable

    def url(self, client: str) -> str:
        """Return the URL of the hooks of a client."""
        return f"{self.server.rstrip('/')}/v1/realms/{quote(self.realm, safe='')}/hooks/{client}"

    def headers(self) -> dict[str, str]:
        """Return the headers by which a hook says how it was installed; the server names a run of its calls by them."""
        headers = {"Server": self.server, "Program": shlex.join(self.program), "Token-File": self.token_file}
        return {f"Wp-Hook-{name}": quote(value, safe="") for name, value in headers.items() if value is not None}

    @classmethod
    def stated(cls, headers: Mapping[str, str], realm: str) -> HookPlace | None:
        """Return where a hook asks by its headers; None where they do not say it.

        Args:
            headers: of a request.
            realm: name of the realm that it names.
        """
        server, file, program = (headers.get(f"Wp-Hook-{name}") for name in ("Server", "Token-File", "Program"))
        if not server:
            return None
        words = shlex.split(unquote(program)) if program else ["worldctl"]
        return cls(unquote(server), realm, unquote(file) if file else None, tuple(words))

    def command(self, client: str, *, is_before: bool) -> str:
        """Return the command that passes an event on to the server.

        Before a call it blocks however it fails: with exit code 2 and a reason on stderr, without which Codex permits
        the call. It is a command of ``sh``, as agents use the shell of the user.
        """
        words = [self.interpreter, "-I", "-S", hook_client.FILE, client, "--server", self.server, "--realm", self.realm]
        file = () if self.token_file is None else ("--token-file", self.token_file)
        program = () if self.program == _PROGRAM else ("--program", shlex.join(self.program))
        text = shlex.join([*words, *file, *program])
        return shlex.join(["sh", "-c", f"{text} || {_BLOCK}"]) if is_before else text


@dataclass(frozen=True, slots=True)
class SettingsForm:
    """The settings of one agent.

    Args:
        path: file with its settings, below the project or the home folder.
        before: the event before a call of a tool.
        after: the other events that are sent.
        unit: how many of its units of time are a second.
        is_flat: whether an event lists hooks directly, without matchers (Cursor).
        takes_http: whether hooks may also be HTTP requests of the agent itself.
    """

    path: str
    before: str
    after: tuple[str, ...]
    unit: int = 1
    is_flat: bool = False
    takes_http: bool = False


_CLAUDE: Final = ("PostToolUse", "PostToolUseFailure", "PermissionDenied", "SessionEnd")
FORMS: Final[Mapping[str, SettingsForm]] = {
    "claude-code": SettingsForm(".claude/settings.json", "PreToolUse", _CLAUDE, takes_http=True),
    "codex": SettingsForm(".codex/hooks.json", "PreToolUse", ("PostToolUse", "SessionEnd")),
    "gemini": SettingsForm(".gemini/settings.json", "BeforeTool", ("AfterTool", "SessionEnd"), unit=1000),
    "cursor": SettingsForm(
        ".cursor/hooks.json", "preToolUse", ("postToolUse", "postToolUseFailure", "sessionEnd"), is_flat=True
    ),
}
"""The settings of each agent, by its name."""


def with_hooks(client: str, settings: Mapping[str, Any], place: HookPlace, *, is_http: bool = False) -> dict[str, Any]:
    """Return settings with the hooks of this engine, in place of those that it had before.

    Args:
        client: one of ``FORMS``.
        settings: the settings as they are.
        place: where the hooks ask.
        is_http: whether the agent sends requests of its own, if it can, and no program is run.
    """
    form, made = FORMS[client], without_hooks(client, settings)
    hooks = dict(made.get("hooks") or {})
    for event in (form.before, *form.after):
        entry = _entry(client, form, place, is_http=is_http, is_before=event == form.before)
        listed = hooks.get(event)
        hooks[event] = [*(listed if isinstance(listed, list) else []), entry]
    made["hooks"] = hooks
    if form.is_flat:
        made.setdefault("version", 1)
    return made


def without_hooks(client: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the hooks of this engine; the arguments are those of ``with_hooks``."""
    form, made = FORMS[client], dict(settings)
    hooks = made.get("hooks")
    if not isinstance(hooks, Mapping):
        return made
    kept: dict[str, Any] = {}
    for event, entries in hooks.items():
        left = _without(form, entries) if isinstance(entries, list) else entries
        if left:
            kept[event] = left
    made["hooks"] = kept
    if not kept:
        del made["hooks"]
    return made


def installed(client: str, settings: Mapping[str, Any]) -> list[str]:
    """Return the events for which settings have a hook of this engine; the arguments are those of ``with_hooks``."""
    form, hooks = FORMS[client], settings.get("hooks")
    if not isinstance(hooks, Mapping):
        return []
    return [
        event for event, entries in hooks.items() if isinstance(entries, list) and _without(form, entries) != entries
    ]


def is_earlier(client: str, settings: Mapping[str, Any]) -> bool:
    """Return whether settings have a hook that an earlier release wrote, in another form than ``with_hooks`` does."""
    return any(
        _SAYS_SERVER not in (one.get("headers") or {}) if "url" in one else not _OWN_CLIENT.search(one["command"])
        for one in _own_hooks(client, settings)
    )


def absent(client: str, settings: Mapping[str, Any]) -> str | None:
    """Return the first program that hooks of this engine run and that does not exist, such as one that was moved."""
    for one in _own_hooks(client, settings):
        words = shlex.split(one["command"]) if "command" in one else []
        words = shlex.split(words[2]) if words[:2] == ["sh", "-c"] else words
        for word in words[:4]:
            if word.startswith("/") and not Path(word).exists():
                return word
    return None


def _own_hooks(client: str, settings: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    form, hooks = FORMS[client], settings.get("hooks")
    listed = [
        hook
        for entries in (hooks.values() if isinstance(hooks, Mapping) else ())
        for entry in (entries if isinstance(entries, list) else ())
        for hook in ((entry.get("hooks") or []) if isinstance(entry, Mapping) and not form.is_flat else [entry])
    ]
    return [one for one in listed if _is_own(one)]


def _without(form: SettingsForm, entries: list[Any]) -> list[Any]:
    if form.is_flat:
        return [one for one in entries if not _is_own(one)]
    left = []
    for matcher in entries:
        listed = matcher.get("hooks") if isinstance(matcher, Mapping) else None
        if not isinstance(listed, list) or not any(map(_is_own, listed)):
            left.append(matcher)
        elif others := [one for one in listed if not _is_own(one)]:
            left.append({**matcher, "hooks": others})
    return left


def _is_own(hook: Any) -> bool:
    if not isinstance(hook, Mapping):
        return False
    url, command = hook.get("url"), hook.get("command")
    is_url = isinstance(url, str) and _OWN_URL.search(url) is not None
    is_command = isinstance(command, str) and any(one.search(command) for one in (_OWN_COMMAND, _OWN_CLIENT))
    return is_url or is_command


def _entry(client: str, form: SettingsForm, place: HookPlace, *, is_http: bool, is_before: bool) -> dict[str, Any]:
    timeout = (TIMEOUT_S if is_before else REPORT_TIMEOUT_S) * form.unit
    hook: dict[str, Any]
    if is_http:
        hook = {
            "type": "http",
            "url": place.url(client),
            "headers": {"Authorization": f"Bearer ${VARIABLE}", **place.headers()},
            "allowedEnvVars": [VARIABLE],
            "timeout": timeout,
        }
    else:
        hook = {"type": "command", "command": place.command(client, is_before=is_before), "timeout": timeout}
    if client == "claude-code" and is_before:
        hook["onFailure"] = "block"
    if form.is_flat:
        return {"command": hook["command"], "timeout": timeout, **({"failClosed": True} if is_before else {})}
    return {"matcher": "*", "hooks": [hook]}
