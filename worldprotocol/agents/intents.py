"""Which intent a call of a tool is: the actions of the domain ``urn:worldprotocol:coding-agents`` and their inputs.

Tools that edit become MUTATES or PROVIDES of a file, tools that read CONSUMES, a page of the web CONSUMES its URL, and
a shell command is opaque (KO-5.1): it is judged by its words, and leases the whole project unless they say that it only
reads, or ``worldctl run`` confines it and takes its leases.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypedDict, Unpack
from urllib.parse import urlsplit

from world.errors import RefusedError
from world.klis.resources.resource_reading import canonical_resource
from worldprotocol.agents.command_kinds import KINDS, kinds_of
from worldprotocol.agents.command_places import places_of
from worldprotocol.agents.command_terms import EVERYTHING, CommandTerms
from worldprotocol.agents.command_words import SimpleCommand, read_command
from worldprotocol.agents.project import Place, Project

__all__ = [
    "Intent",
    "command",
    "delete",
    "edit",
    "fetch",
    "mcp_call",
    "named_tool",
    "other",
    "patch",
    "read",
    "search",
]

_PATCHED: Final = re.compile(r"^[ \t]*\*\*\* (?:(?:Update|Add|Delete) File|Move to): (.+)$", re.MULTILINE)
_DELETED: Final = re.compile(r"^[ \t]*\*\*\* Delete File: ", re.MULTILINE)
HARMLESS: Final = frozenset({"read"})
"""Kinds of commands that lease nothing for changes."""

UNCONFINED: Final = frozenset({"network", "publish", "privileged"})
"""Kinds of commands that cannot do their work confined: they run as a person permits them."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An action of the domain with its input.

    Args:
        action: its name.
        input: JSON.
    """

    action: str
    input: Mapping[str, Any]


class Governed(TypedDict, total=False):
    """What a proxy adds to a call of a tool of an MCP server.

    Args:
        pin: whether the tool's definition is ``pinned``, has ``changed`` since, or is ``new``.
        timeLimitMs: time after which a call whose proxy is silent is in doubt, in milliseconds.
        integers: JSON pointers of the texts in the arguments that are integers beyond 2^53.
    """

    pin: str
    timeLimitMs: int
    integers: list[str]


def read(project: Project, tool: str, path: str, cwd: str) -> Intent:
    """Return the intent of reading a file, or listing a folder."""
    place = project.place(path, cwd)
    is_folder = place.is_inside and (project.root / place.path[1:]).is_dir()
    return _file("file.read", tool, _below(place) if is_folder else place, "read")


def search(project: Project, tool: str, path: str, cwd: str, pattern: str = "") -> Intent:
    """Return the intent of reading any file below a folder.

    Args:
        project: the project.
        tool: name of the agent's tool.
        path: the folder; empty is the working directory.
        cwd: the working directory.
        pattern: names of files below it; one that begins elsewhere is searched there.
    """
    fixed = re.split(r"[*?\[{]", pattern, maxsplit=1)[0]
    if os.path.isabs(os.path.expanduser(fixed)) or ".." in pattern:
        below = os.path.normpath(os.path.join(project.absolute(cwd), path, os.path.expanduser(fixed)))
        path = below if fixed.endswith("/") or fixed == pattern else os.path.dirname(below)
    return read(project, tool, path or ".", cwd)


def edit(project: Project, tool: str, path: str, cwd: str) -> Intent:
    """Return the intent of writing a file: PROVIDES where it does not exist, else MUTATES."""
    place = project.place(path, cwd)
    return _file("file.edit" if place.exists else "file.create", tool, place, "write")


def delete(project: Project, tool: str, path: str, cwd: str) -> Intent:
    """Return the intent of deleting a file."""
    return _file("file.delete", tool, project.place(path, cwd), "write")


def command(project: Project, tool: str, text: str, cwd: str, *, terms: CommandTerms) -> Intent:
    """Return the intent of running a shell command.

    Args:
        project: the project.
        tool: name of the agent's tool.
        text: the command.
        cwd: its working directory.
        terms: how commands run; those that need the network or the machine, or begin outside of the project, are not
            confined.
    """
    commands, is_opaque = read_command(text)
    named = places_of(project, commands, project.absolute(cwd))
    kinds = kinds_of(commands, is_opaque or named.is_partial)
    if named.is_outside:
        kinds = [kind for kind in KINDS if kind in kinds or kind == "outside"]
    only_reads = HARMLESS.issuperset(kinds)
    folder = project.place(cwd, cwd)
    vectors = [] if is_opaque else [(_vector(one), kinds_of([one], False) == ["read"]) for one in commands]
    is_held = folder.is_inside and UNCONFINED.isdisjoint(kinds)
    return Intent(
        "command.run",
        {
            "command": text,
            "cwd": folder.path,
            "kinds": kinds,
            **terms.of(text, vectors, str(project.root), is_held=is_held),
            "tool": tool,
            "touches": named.touches,
            "guarded": not only_reads and (named.is_guarded or project.names_guarded(text)),
        },
    )


def _vector(command: SimpleCommand) -> list[str] | None:
    """Return the argument vector of a command; None where the shell replaces some of its words."""
    if any(word.is_expanded or word.is_pattern for word in command.words):
        return None
    return [word.text for word in command.words]


def patch(project: Project, tool: str, text: str, cwd: str) -> Intent:
    """Return the intent of applying a patch in the form of Codex, which leases each file that it names.

    Args:
        project: the project.
        tool: name of the agent's tool.
        text: the patch.
        cwd: the working directory.
    """
    places = [project.place(name.strip(), cwd) for name in _PATCHED.findall(text)]
    is_clear = bool(places) and all(place.is_inside for place in places)
    return Intent(
        "command.run",
        {
            "command": text,
            "cwd": project.place(cwd, cwd).path,
            "kinds": ["write", *(["remove"] if _DELETED.search(text) else []), *([] if is_clear else ["unknown"])],
            "reads": [],
            "writes": sorted({place.path for place in places}) if is_clear else [EVERYTHING],
            "confined": False,
            "tool": tool,
            "touches": sorted({place.path for place in places if place.is_inside}),
            "guarded": any(place.is_guarded for place in places),
        },
    )


def fetch(tool: str, url: str) -> Intent:
    """Return the intent of reading a page of the web."""
    with suppress(RefusedError):  # a URL that is none stays as it is; its manifest is refused, and so the proposal
        url = canonical_resource(f"URL:{url}").text.removeprefix("URL:")
    return Intent("web.fetch", {"url": url, "host": urlsplit(url).hostname or "", "tool": tool})


def mcp_call(server: str, name: str, arguments: Any, **governed: Unpack[Governed]) -> Intent:
    """Return the intent of calling a tool of an MCP server.

    Args:
        server: name of the server, as the agent calls it.
        name: name of the tool.
        arguments: JSON.
        **governed: what a proxy adds; see ``Governed``.
    """
    given = {"server": server, "name": name, "arguments": arguments, "tool": f"mcp__{server}__{name}"}
    return Intent("mcp.call", {**given, **governed})


def named_tool(tool: str, arguments: Any) -> Intent:
    """Return the intent of a tool of an MCP server, where it is named ``mcp__SERVER__TOOL``, else of another tool."""
    if tool.startswith("mcp__") and tool.count("__") >= 2:
        _, server, called = tool.split("__", 2)
        return mcp_call(server, called, arguments)
    return other(tool, arguments)


def other(tool: str, arguments: Any) -> Intent:
    """Return the intent of using a tool that is none of these."""
    return Intent("tool.use", {"tool": tool, "arguments": arguments})


def _below(place: Place) -> Place:
    path = EVERYTHING if place.path == "/" else f"{place.path}/*"
    return Place(path, place.is_inside, place.is_guarded, place.exists)


def _file(action: str, tool: str, place: Place, access: str) -> Intent:
    common = {"path": place.path, "tool": tool, "guarded": place.is_guarded}
    if place.is_inside:
        return Intent(action, common)
    return Intent("file.outside", {**common, "access": access})
