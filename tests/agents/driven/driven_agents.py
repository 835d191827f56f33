"""Claude Code and Codex from npm, driven by scripted models, in terminals of their own, and ways to end them."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from uuid import uuid4

import psutil

from examples.frameworks.scripted_messages import scripted_messages
from tests.agents.driven.scripted_responses import scripted_responses
from tests.cli.realm import environment
from tests.npm.install import PACKAGES
from tests.server.served import Served
from tests.support.patience import PATIENCE_S, until
from worldprotocol.agents import hook_client
from worldprotocol.agents.hooks.settings import FORMS, HookPlace, with_hooks

CLAUDE: Final = "@anthropic-ai/claude-code-linux-*/claude"
CODEX: Final = "@openai/codex-linux-*/vendor/*/bin/codex"
"""Programs in the packages of npm, which has those of this machine alone."""

REQUEST: Final = "Do what the script says."
SHELLS: Final = ("sh", "bash", "dash", "zsh")
MARK: Final = "DRIVEN_AGENT"
"""Variable by which the processes of an agent are found again."""

LOOKS_S: Final = 0.2
"""Time between two looks at all processes, in seconds: each takes some time itself."""

ENDS_S: Final = 5.0
"""How long an agent may take to end after a signal, in seconds, before it is killed."""


class Cable:
    """A connection to a server on TCP that can be cut.

    Args:
        url: of the server.
    """

    def __init__(self, url: str) -> None:
        to = urlsplit(url)
        self._to = to.hostname, to.port
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listen(0)
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def _listen(self, port: int) -> None:
        self._listening = socket.create_server(("127.0.0.1", port))
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                threading.Thread(target=self._relay, args=(near,), daemon=True).start()

    def _relay(self, near: socket.socket) -> None:
        with near, suppress(OSError), socket.create_connection(self._to) as far:
            with self._lock:
                self._open += [near, far]
            while True:
                ready, _, _ = select.select([near, far], [], [])
                for one in ready:
                    piece = one.recv(65_536)
                    if not piece:
                        return
                    (far if one is near else near).sendall(piece)

    def cut(self) -> None:
        """End all connections, and take no more."""
        for one in (self._listening, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._accepting.join(PATIENCE_S)
        self._open.clear()

    def restore(self) -> None:
        """Take connections again."""
        if not self._accepting.is_alive():
            self._listen(int(self.url.rpartition(":")[2]))


@dataclass
class Driven:
    """A running agent.

    Args:
        process: the agent.
        terminal: the other end of its terminal; -1 where it was closed.
        cable: its connection to the server of the realm.
        mark: value of ``MARK`` of its processes.
        said: what it printed until now.
    """

    process: psutil.Popen
    terminal: int
    cable: Cable
    mark: str
    said: bytes = b""

    def hooks(self, *, with_shells: bool = True) -> list[psutil.Process]:
        """Return the processes of its hooks."""
        found = []
        with suppress(psutil.Error):
            for one in self.process.children(recursive=True):
                with suppress(psutil.Error):
                    is_hook = any(hook_client.FILE in word for word in one.cmdline())
                    if is_hook and (with_shells or one.name() not in SHELLS):
                        found.append(one)
        return found

    def processes(self) -> list[psutil.Process]:
        """Return all processes that it left, except guards."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error, OSError):
                if one.environ().get(MARK) == self.mark and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
        return found

    def guards(self) -> list[psutil.Process]:
        """Return its guards."""
        found = []
        for one in psutil.process_iter():
            with suppress(psutil.Error):
                line = one.cmdline()
                if hook_client.FILE in line and "guard" in line and self.cable.url in line:
                    found.append(one)
        return found

    def is_running(self) -> bool:
        """Read what it has printed, and return whether it lives."""
        with suppress(OSError):
            while self.terminal >= 0 and select.select([self.terminal], [], [], 0)[0]:
                self.said += os.read(self.terminal, 65_536)
        return self.process.poll() is None

    def close_terminal(self) -> None:
        """Close its terminal."""
        if self.terminal >= 0:
            os.close(self.terminal)
            self.terminal = -1

    def end(self, how: str, chance: random.Random) -> str:
        """End the agent, its hook or its connection; return what was ended."""
        hooks = self.hooks(with_shells=not how.endswith("INT"))  # one alone ends no shell that waits for a program
        if how.startswith("hook") and hooks:
            victim = chance.choice(hooks)
            with suppress(psutil.Error):
                victim.send_signal(getattr(signal, f"SIG{how.split()[1]}"))
            return how
        if how == "terminal":
            self.close_terminal()
        elif how == "connection":
            self.cable.cut()
            return how
        else:
            self.process.send_signal(getattr(signal, f"SIG{how.split()[1]}"))
        self.wait(ENDS_S)
        return how.replace("hook", "agent")

    def wait(self, longest_s: float) -> None:
        """Wait until the agent has ended; kill it if it takes longer."""
        end = time.monotonic() + longest_s
        while self.is_running() and time.monotonic() < end:
            time.sleep(LOOKS_S)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(PATIENCE_S)


@contextmanager
def driven(served: Served, kind: str, command: str, folder: Path) -> Iterator[Driven]:
    """Start an agent whose model runs one shell command.

    Args:
        served: the server of the realm.
        kind: ``claude-code`` or ``codex``.
        command: what the model runs.
        folder: where the agent keeps its files.
    """
    project = served.place.folder.parent / "project"
    cable, mark = Cable(served.url), uuid4().hex
    program = (str(Path(sys.executable).with_name("worldctl")),)
    settings = project / FORMS[kind].path
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps(with_hooks(kind, {}, HookPlace(cable.url, "main", program=program))))
    with ExitStack() as stack:
        words, variables = (
            _claude(stack, command, folder) if kind == "claude-code" else _codex(stack, command, folder, project)
        )
        outside = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1", "HOME": str(folder), MARK: mark}
        kept = {name: value for name, value in environment().items() if not name.startswith(("CLAUDE", "ANTHROPIC"))}
        kept.pop("PYTHONWARNINGS")
        variables = {**kept, **outside, **variables, "WORLDCTL_TOKEN": served.place.tokens["claude"], "TERM": "xterm"}
        terminal, other = os.openpty()
        process = psutil.Popen(
            ["setsid", "--ctty", *words], cwd=project, env=variables, stdin=other, stdout=other, stderr=other
        )
        os.close(other)
        agent = Driven(process, terminal, cable, mark)
        try:
            yield agent
        finally:
            agent.wait(0)
            agent.close_terminal()
            cable.restore()  # guards report the end of the agent until it is heard
            until(lambda: not agent.guards() and not agent.processes(), pause_s=LOOKS_S)
            cable.cut()


def _program(pattern: str) -> str:
    return str(next(PACKAGES.glob(pattern)))


def _claude(stack: ExitStack, command: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    url = stack.enter_context(scripted_messages(REQUEST, [("Bash", {"command": command, "description": "script"})]))
    variables = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "scripted",
        "CLAUDE_CONFIG_DIR": str(folder / "claude"),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    return [_program(CLAUDE), "-p", REQUEST, "--model", "scripted"], variables


def _codex(stack: ExitStack, command: str, folder: Path, project: Path) -> tuple[list[str], dict[str, str]]:
    url = stack.enter_context(scripted_responses(command))
    home = folder / "codex"
    home.mkdir(parents=True, exist_ok=True)
    (home / "config.toml").write_text(
        'model = "scripted"\nmodel_provider = "script"\n[model_providers.script]\nname = "script"\n'
        f'base_url = "{url}"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n'
        f'[projects."{project}"]\ntrust_level = "trusted"\n'
    )
    options = ["--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check"]
    return [_program(CODEX), "exec", *options, REQUEST], {"CODEX_HOME": str(home)}
