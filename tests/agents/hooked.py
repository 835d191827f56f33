"""A realm of coding agents, its server, and scripted agents that send the events of their hooks."""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx

from tests.cli.realm import COMMAND, environment
from tests.server.served import Place, Served, serving
from world.events.lease_events import VerdictGiven
from world.events.verification import Right
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

ACTORS: Mapping[str, tuple[str, list[Right]]] = {
    "ann": ("human", ["approver", "reader"]),
    "claude": ("agent", ["actor"]),
    "other": ("agent", ["actor"]),
    "idle": ("agent", []),
}
FILES = {"src/app.py": "x = 1\n", "src/lib.py": "y = 2\n", ".env": "SECRET=1\n"}


def founded(folder: Path, agents: str = "", *, confined: bool = False, commands: str = "") -> Place:
    """Found a realm from the template, beside a project; commands are confined to it if that is asked for."""
    realm, project = folder / "realm", folder / "project"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    subprocess.run([*COMMAND, "init", str(realm), "--template", "coding-agents"], env=environment(), check=True)
    config = realm / "world.toml"
    text = config.read_text().replace('root = "project"', f"root = {json.dumps(str(project))}")
    for name, value in (("unclaimed_s", "900"), ("reads", '"content"')):
        text = text.replace(f"{name} = {value}", "") if name in agents else text
    if confined:
        text = (
            text.replace('confine = "auto"', "confine = true")
            + f"\n[workspace]\nroot = {json.dumps(str(project))}\n{commands}"
        )
    text = text.replace("[server]\n", "[server]\nrequests_per_second = 10000\nburst = 10000\n")
    config.write_text(text.replace("wait_s = 540", agents or "wait_s = 30"))
    place = Place(realm, str(realm / "world.db"))
    with Realm.from_config(read_config(config)) as opened:
        for name, (kind, rights) in ACTORS.items():
            binding = {"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]}
            given = binding if kind == "agent" else {"kind": "auto_approve"}
            opened.register(name, kind, binding=given)  # type: ignore[arg-type]
            for right in rights:
                opened.access.grant(name, right, by="operator")
            place.tokens[name] = opened.access.create_token(name, by="operator").token
    return place


@contextmanager
def hooked(folder: Path, agents: str = "", *, confined: bool = False, commands: str = "") -> Iterator[Served]:
    """Serve a new realm of coding agents; the arguments are those of ``founded``."""
    with serving(founded(folder, agents, confined=confined, commands=commands)) as served:
        yield served


@dataclass
class Claude:
    """A scripted Claude Code: it sends the documented events, and does what the answers say.

    Args:
        served: the server.
        actor: whose token it has.
        session: id of its session.
        is_rewritten: whether the hook says how it was installed, so that shell commands are rewritten.
    """

    served: Served
    actor: str = "claude"
    session: str = "session-1"
    is_rewritten: bool = False

    @property
    def project(self) -> Path:
        """The folder it works in."""
        return self.served.place.folder.parent / "project"

    def event(self, name: str, **members: Any) -> httpx.Response:
        """Send an event as version 2.1.330 does."""
        body = {
            "session_id": self.session,
            "transcript_path": f"~/.claude/projects/{self.session}.jsonl",
            "cwd": str(self.project),
            "permission_mode": "default",
            "hook_event_name": name,
            **members,
        }
        installed = {
            "Wp-Hook-Server": quote(self.served.url, safe=""),
            "Wp-Hook-Program": quote(shlex.join(COMMAND), safe=""),
        }
        with self.served.client(self.actor) as client:
            headers = installed if self.is_rewritten else {}
            return client.post("/v1/realms/main/hooks/claude-code", json=body, headers=headers)

    def before(self, tool: str, call_id: str | None = None, **given: Any) -> tuple[str, str, dict[str, Any]]:
        """Ask whether a call may be made: the decision, its reason, and the whole answer."""
        call_id = call_id or f"toolu_{uuid4().hex}"
        answer = self.event("PreToolUse", tool_name=tool, tool_input=given, tool_use_id=call_id)
        assert answer.status_code == 200, answer.text
        told = answer.json()["hookSpecificOutput"]
        assert told["hookEventName"] == "PreToolUse"
        return told["permissionDecision"], told["permissionDecisionReason"], {**told, "id": call_id}

    def after(self, call_id: str, tool: str = "Edit", response: Any = "done") -> None:
        """Say that a call was made."""
        answer = self.event("PostToolUse", tool_name=tool, tool_input={}, tool_response=response, tool_use_id=call_id)
        assert (answer.status_code, answer.json()) == (200, {})

    def failed(self, call_id: str, error: str = "no such text") -> None:
        """Say that a call failed."""
        answer = self.event("PostToolUseFailure", tool_name="Edit", tool_input={}, tool_use_id=call_id, error=error)
        assert (answer.status_code, answer.json()) == (200, {})

    def edit(self, name: str, call_id: str | None = None) -> tuple[str, str, dict[str, Any]]:
        """Ask whether a file may be edited."""
        given = {"file_path": str(self.project / name), "old_string": "1", "new_string": "2"}
        return self.before("Edit", call_id, **given)


def proposals(served: Served) -> list[dict[str, Any]]:
    """Return all proposals, the first submitted first."""
    with served.client("ann") as client:
        return client.get("/v1/realms/main/proposals?limit=100").json()["proposals"]


def refusals(served: Served, agent: str) -> list[str]:
    """Return the verdicts by which leases of an agent were refused."""
    with served.place.realm() as realm:
        events = [one for _, one in realm.events() if isinstance(one, VerdictGiven)]
    return [one.status for one in events if one.agent_id == agent and one.status != "Granted"]
