"""Agents that run hooks as processes, and the guards that these leave."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psutil

from tests.cli.realm import COMMAND, environment
from tests.server.served import Served
from tests.support.patience import PATIENCE_S, until
from worldprotocol.agents.hook_client import FILE
from worldprotocol.agents.hooks.settings import HookPlace

AGENT = Path(__file__).resolve().parent / "plain_agent.py"


class Agent:
    """A process that runs the commands of hooks, in a process group of its own.

    Args:
        address: the server of the hooks.
        session: id of its session.
    """

    def __init__(self, address: str, session: str | None = None) -> None:
        self.session = session or str(uuid4())
        self.place = HookPlace(address, "main")
        self._sessions: set[str] = set()
        self.process = subprocess.Popen(
            [sys.executable, str(AGENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**environment(), "WORLDCTL_TOKEN": "wp1_token", "SECRET": "of the agent"},
            start_new_session=True,
        )

    def start(self, name: str = "PreToolUse") -> None:
        """Begin to run the installed command for an event."""
        self._run(self._command(name), self._event(name), waits=False)

    def hook(self, name: str = "PreToolUse") -> dict[str, Any]:
        """Run the installed command for an event, and return how it ended."""
        return self.run(self._command(name), self._event(name))

    def run(self, command: str, event: Any) -> dict[str, Any]:
        """Run a command of ``sh`` with an event on stdin, and return its ``code``, ``out`` and ``err``."""
        self._run(command, event, waits=True)
        assert self.process.stdout is not None
        return dict(json.loads(self.process.stdout.readline()))

    def _command(self, name: str) -> str:
        return self.place.command("claude-code", is_before=name == "PreToolUse")

    def _event(self, name: str) -> dict[str, Any]:
        return {"hook_event_name": name, "session_id": self.session, "tool_name": "Read", "tool_input": {}}

    def _run(self, command: str, event: Any, *, waits: bool) -> None:
        assert self.process.stdin is not None
        self._sessions |= {event[name] for name in ("session_id", "conversation_id") if name in event}
        self.process.stdin.write(json.dumps({"command": command, "event": event, "waits": waits}) + "\n")
        self.process.stdin.flush()

    def kill(self, sent: signal.Signals = signal.SIGKILL) -> None:
        """End the agent."""
        self.process.send_signal(sent)
        self.process.wait(PATIENCE_S)

    def close(self) -> None:
        """End the agent, if it lives, and wait until its guards have ended."""
        self.process.kill()
        self.process.wait(PATIENCE_S)
        for one in (self.process.stdin, self.process.stdout):
            assert one is not None
            one.close()
        until(lambda: not any(guards(one) for one in self._sessions))


def guards(session: str) -> list[psutil.Process]:
    """Return the processes that guard a session."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = one.info["cmdline"] or []
        if FILE in line and "guard" in line and session in line:
            found.append(one)
    return found


def passed_on(served: Served, agent: Agent, client: str, event: Any, actor: str = "claude") -> SimpleNamespace:
    """Run the full program for an event, as an agent does, and return its ``code``, ``out`` and ``err``."""
    words = [*COMMAND, "hooks", "call", client, "--server", served.url]
    return SimpleNamespace(**agent.run(f"WORLDCTL_TOKEN={served.place.tokens[actor]} {shlex.join(words)}", event))
