"""Settings of coding agents that switch hooks off, so that calls would be made without a question.

An agent reads several files: of the project, of the user and of the machine. A file that cannot be read counts if its
text has the name of such a setting. Sources: the agents' documentation of their settings, and Gemini CLI 0.26.0.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["Silencing", "silencing"]

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude-code": ("disableAllHooks", "allowManagedHooksOnly"),
    "codex": ("allow_managed_hooks_only", "hooks", "codex_hooks"),
    "gemini": ("hooksConfig", "enableHooks"),
    "cursor": (),
}
"""Settings, or sections, that switch hooks off, by the name of the agent."""


class Silencing(NamedTuple):
    """A setting that switches the hooks of an agent off.

    Args:
        file: where it is.
        setting: its name and value, or why the file cannot be read.
    """

    file: Path
    setting: str

    def __str__(self) -> str:
        return f"{self.setting} in {self.file}"


def silencing(client: str, project: Path, home: Path, *, system: Path = Path("/")) -> list[Silencing]:
    """Return the settings that switch off hooks which are not an administrator's.

    Args:
        client: the agent, one of ``NAMES``.
        project: the project.
        home: the home folder of the user.
        system: the root of the machine's own settings.
    """
    files: dict[Path, None] = dict.fromkeys(_FILES[client](project, home, system))
    return [found for file in files for found in _in_file(client, file)]


def _in_file(client: str, file: Path) -> Iterator[Silencing]:
    try:
        text = file.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return
    except (OSError, ValueError) as error:
        yield Silencing(file, f"unreadable settings ({type(error).__name__})")
        return
    try:
        settings = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
    except ValueError:
        if any(name in text for name in NAMES[client]):
            yield Silencing(file, f"settings that cannot be read and name {', '.join(NAMES[client])}")
        return
    if isinstance(settings, Mapping):
        yield from (Silencing(file, setting) for setting in _SETTINGS[client](settings))


def _claude_files(project: Path, home: Path, system: Path) -> Iterator[Path]:
    own = os.environ.get("CLAUDE_CONFIG_DIR")
    yield from (project / ".claude" / name for name in ("settings.json", "settings.local.json"))
    yield (Path(own) if own else home / ".claude") / "settings.json"
    for folder in (system / "etc/claude-code", system / "Library/Application Support/ClaudeCode"):
        yield folder / "managed-settings.json"
        yield from sorted((folder / "managed-settings.d").glob("*.json"))


def _codex_files(project: Path, home: Path, system: Path) -> Iterator[Path]:
    own = os.environ.get("CODEX_HOME")
    yield project / ".codex/config.toml"
    yield (Path(own) if own else home / ".codex") / "config.toml"
    yield from (system / "etc/codex" / name for name in ("config.toml", "managed_config.toml", "requirements.toml"))


def _gemini_files(project: Path, home: Path, system: Path) -> Iterator[Path]:
    own = os.environ.get("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
    yield from (folder / ".gemini/settings.json" for folder in (project, home))
    yield Path(own) if own else system / "etc/gemini-cli/settings.json"
    yield system / "Library/Application Support/GeminiCli/settings.json"


_FILES: Final[Mapping[str, Callable[[Path, Path, Path], Iterator[Path]]]] = {
    "claude-code": _claude_files,
    "codex": _codex_files,
    "gemini": _gemini_files,
    "cursor": lambda _project, _home, _system: iter(()),
}


def _claude_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    for name in NAMES["claude-code"]:
        if settings.get(name) not in (None, False):
            yield f"{name} = {json.dumps(settings[name])}"


def _codex_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    if settings.get("allow_managed_hooks_only") not in (None, False):
        yield "allow_managed_hooks_only = true"
    profiles = _section(settings, "profiles")
    sections = {"features": _section(settings, "features")}
    sections |= {f"profiles.{name}.features": _section(_section(profiles, name), "features") for name in profiles}
    for place, features in sections.items():
        for name in ("hooks", "codex_hooks"):
            if features.get(name) is False:
                yield f"{place}.{name} = false"


def _gemini_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    config = _section(settings, "hooksConfig")
    if config.get("enabled") not in (None, True):
        yield f"hooksConfig.enabled = {json.dumps(config['enabled'])}"
    if _section(settings, "tools").get("enableHooks") not in (None, True):
        yield "tools.enableHooks = false"
    named = config.get("disabled")
    for one in named if isinstance(named, list) else ():
        if isinstance(one, str) and ("hooks call" in one or "hook_client.py" in one or one == "*"):
            yield f"hooksConfig.disabled with {one!r:.80}"


_SETTINGS: Final[Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]]] = {
    "claude-code": _claude_settings,
    "codex": _codex_settings,
    "gemini": _gemini_settings,
    "cursor": lambda _settings: iter(()),
}


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, Mapping) else {}
