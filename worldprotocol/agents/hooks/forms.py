"""What every adapter of a coding agent has in common: the events of its hooks, and the answers to them."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.agents.call_values import content_of
from worldprotocol.agents.command_terms import CommandTerms
from worldprotocol.agents.command_words import read_command
from worldprotocol.agents.hooks.settings import HookPlace
from worldprotocol.agents.intents import Intent
from worldprotocol.agents.project import Project
from worldprotocol.runs.call_folder import folder_file

__all__ = [
    "CallBegins",
    "CallContinues",
    "CallEnds",
    "HookAdapter",
    "HookEvent",
    "Other",
    "SessionEnds",
    "content_id",
    "input_of",
    "is_partial",
    "key_of",
    "names_of",
    "rewritten",
    "text_of",
]

_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9._:-]")  # not the mark of an attempt either
MAX_KEY: Final = 180
SHELL: Final = "bash"
"""The shell that agents use."""

_CHANGING_FOLDER: Final = frozenset({"cd", "pushd", "popd"})
_EVALUATING: Final = frozenset({".", "eval", "source"})


@dataclass(frozen=True, slots=True)
class CallBegins:
    """An agent is about to call a tool and asks whether it may.

    Args:
        session: id of the agent's session.
        call_id: id of the call within the session.
        tool: name of the tool.
        intent: what the call is.
        has_own_id: whether the agent gives each call an id of its own; otherwise ``call_id`` is made of its content.
        shell: input of a tool whose member ``command`` is run by a shell, and which may be rewritten; None is another.
        rewrites: input of the tool in place of the given one, where the call is allowed; None keeps it.
        follows: whether earlier calls of the same tool in this session have ended: the agent makes them one at a time,
            and does not report those that fail.
        worker: the process that makes the call, where a repeated event of another one is not the same; None is the
            agent.
        excludes_equal: see ``ToolCall.excludes_equal``.
        wait_s: longest wait for an answer, in seconds; None is what the realm's configuration says.
        is_for_program: whether the answer also has members for programs: proposal, code, and what it waits for.
        version: version of the agent, where its events state it.
    """

    session: str
    call_id: str
    tool: str
    intent: Intent
    has_own_id: bool = True
    shell: Mapping[str, Any] | None = None
    rewrites: Mapping[str, Any] | None = None
    follows: bool = False
    worker: str | None = None
    excludes_equal: bool = False
    wait_s: float | None = None
    is_for_program: bool = False
    version: str | None = None


@dataclass(frozen=True, slots=True)
class CallContinues:
    """A call that was allowed is still being made.

    Args:
        session: id of the agent's session.
        call_id: id of the call within the session.
        worker: the process that makes it.
    """

    session: str
    call_id: str
    worker: str | None = None


@dataclass(frozen=True, slots=True)
class CallEnds:
    """A call ended.

    Args:
        session: id of the agent's session.
        call_id: id of the call within the session.
        outcome: ``made``, ``failed``, or ``not made`` where it was given up before it was made.
        detail: the tool's answer, or the error.
        worker: the process that makes it; None is the agent.
        digest: hash and size of the answer, where the sender states them in place of the answer.
        is_partial: whether the answer says that a file was read in part.
    """

    session: str
    call_id: str
    outcome: Literal["made", "failed", "not made"]
    detail: Any = None
    worker: str | None = None
    digest: Mapping[str, Any] | None = None
    is_partial: bool = False


@dataclass(frozen=True, slots=True)
class SessionEnds:
    """A session ended: calls that were not begun are given up.

    Args:
        session: its id.
    """

    session: str


@dataclass(frozen=True, slots=True)
class Other:
    """An event without a meaning here; nothing is recorded."""


HookEvent = CallBegins | CallContinues | CallEnds | SessionEnds | Other


class HookAdapter(Protocol):
    """The hooks of one coding agent: how its events read, and how answers are written."""

    def read(self, event: Mapping[str, Any], project: Project, *, terms: CommandTerms) -> HookEvent:
        """Return what an event means.

        Args:
            event: the JSON that the agent sends.
            project: the project it works in.
            terms: how its shell commands run.

        Raises:
            RefusedError: ``INVALID_VALUE`` for an event that is not in the documented form.
        """
        ...

    def allow(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that permits a call."""
        ...

    def deny(self, begun: CallBegins, reason: str) -> dict[str, Any]:
        """Return the answer that refuses a call, with a reason for the agent."""
        ...


def names_of(given: Mapping[str, Any], *members: str) -> list[str]:
    """Return the patterns of names that members of an input have, each a text or a list of texts.

    Args:
        given: the input of a tool.
        members: names of members.
    """
    found = [given.get(name) for name in members]
    listed = [one for value in found for one in (value if isinstance(value, list) else [value])]
    return [one for one in listed if isinstance(one, str) and one]


def is_partial(given: Mapping[str, Any], *members: str) -> bool:
    """Return whether the input of a tool that reads a file names a part of it.

    Args:
        given: the input of the tool.
        members: names of the members that do.
    """
    return any(given.get(name) is not None for name in members)


def key_of(client: str, session: str, call_id: str) -> str:
    """Return the key of a call: the same for every repetition of its event."""
    key = f"{client}:{session}:{call_id}"
    if _UNUSUAL.search(key) or len(key) > MAX_KEY or ":" in session:  # what a colon joins has to be unambiguous
        key = f"{client}:{hashlib.sha256(repr((session, call_id)).encode()).hexdigest()}"
    return key


def content_id(tool: str, given: Any) -> str:
    """Return an id of a call that is made of its content, for agents that send none."""
    return hashlib.sha256(content_of([tool, given])).hexdigest()[:32]


def input_of(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input of the tool; one that is no object is empty."""
    given = event.get("tool_input")
    return given if isinstance(given, Mapping) else {}


def text_of(event: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """Return a text of an event.

    Raises:
        RefusedError: ``INVALID_VALUE`` where it is absent and has no default, or is no text.
    """
    value = event.get(name, default)
    if not isinstance(value, str) or (not value and default is None):
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"The event of the hook has no text {name!r}: {value!r:.100}. The versions that are supported are in "
            "docs/agents.md; block the call.",
        )
    return value


def rewritten(hook: HookPlace, key: str, begun: CallBegins, root: Path) -> dict[str, Any] | None:
    """Return the input of a shell tool that runs its command by ``worldctl run --call``; None where it stays as it is.

    Where the words change the folder, or say nothing certain, the agent's shell enters the folder in which the command
    ended, so that the next call begins there.

    Args:
        hook: how the hook was installed.
        key: the key of the call.
        begun: the call.
        root: the workspace.
    """
    if begun.shell is None:
        return None
    text = begun.intent.input["command"]
    place = ["--server", hook.server, "run", "--realm", hook.realm, "--call", key]
    file = [] if hook.token_file is None else ["--token-file", hook.token_file]
    unconfined = [] if begun.intent.input["confined"] else ["--unconfined"]
    line = shlex.join([*hook.program, *place, *file, *unconfined, "--", SHELL, "-c", text])
    if _may_change_folder(text):
        line += f'; s=$?; cd -- "$(cat {shlex.quote(str(folder_file(root, key)))} 2>/dev/null)"; (exit $s)'
    return {**begun.shell, "command": line}


def _may_change_folder(text: str) -> bool:
    """Return whether a shell may be in another folder after a text."""
    commands, is_opaque = read_command(text)
    words = [one.text for command in commands for one in command.words]
    programs = [command.words[0].text for command in commands if command.words]
    return is_opaque or not _CHANGING_FOLDER.isdisjoint(words) or not _EVALUATING.isdisjoint(programs)
