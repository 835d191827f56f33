"""Which intent a call of a tool is: the actions of the domain ``urn:worldprotocol:coding-agents`` and their inputs.

Tools that edit become MUTATES or PROVIDES of a file, tools that read CONSUMES a content (``files.calls``), a page of
the web CONSUMES its URL, and a shell command is opaque (KO-5.1): it is judged by its words, and MUTATES the whole
project unless ``worldctl run`` confines it to less.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypedDict, Unpack

from world.klis.resources.canonical_url import canonical_url
from worldprotocol.agents.command_kinds import in_order, read_words
from worldprotocol.agents.command_places import places_of
from worldprotocol.agents.command_terms import EVERYTHING, CommandTerms
from worldprotocol.agents.command_words import SimpleCommand, is_plain, read_command
from worldprotocol.agents.files.uses import FileUse, scan_key
from worldprotocol.agents.name_patterns import read_patterns
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

_CHANGED: Final = re.compile(r"^[ \t]*\*\*\* (?:(?:Update|Add) File|Move to): (.+)$", re.MULTILINE)
_WHOLE: Final = re.compile(r"^[ \t]*\*\*\* (?:Add File|Move to): (.+)$", re.MULTILINE)
_DELETED: Final = re.compile(r"^[ \t]*\*\*\* Delete File: (.+)$", re.MULTILINE)
HARMLESS: Final = frozenset({"read"})
"""Kinds of commands that lease nothing for changes."""

UNCONFINED: Final = frozenset({"container", "install", "network", "privileged", "publish", "push"})
"""Kinds of commands that cannot do their work confined: they run as a person permits them."""


@dataclass(frozen=True, slots=True)
class Intent:
    """An action of the domain with its input.

    Args:
        action: its name.
        input: JSON.
        files: which contents of files the call reads or writes.
    """

    action: str
    input: Mapping[str, Any]
    files: FileUse = field(default=FileUse(), compare=False)


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


def read(project: Project, tool: str, path: str, cwd: str, *, is_whole: bool = True) -> Intent:
    """Return the intent of reading a file, or listing a folder.

    Args:
        project: the project.
        tool: name of the agent's tool.
        path: the file or folder.
        cwd: the working directory.
        is_whole: whether the whole file is read.
    """
    place = project.place(path, cwd)
    if place.is_inside and (project.root / place.path[1:]).is_dir():
        below = _below(place)
        return replace(_file("file.read", tool, below, "read"), files=FileUse(scan=scan_key(tool, below.path)))
    return _file("file.read", tool, place, "read", is_whole=is_whole)


def search(project: Project, tool: str, path: str, cwd: str, patterns: Sequence[str] = ()) -> Intent:
    """Return the intent of reading any file below a folder.

    Args:
        project: the project.
        tool: name of the agent's tool.
        path: the folder; empty is the working directory.
        cwd: the working directory.
        patterns: names of files that are searched, or lists of them; one that begins elsewhere is searched there.
            Without any all are. One that tools read differently may name any file, hidden or guarded.
    """
    folder = project.resolve(path or ".", cwd)
    chosen, is_clear = read_patterns(patterns)
    begins = [_begins(one, folder) for one in chosen]
    found = [read(project, tool, path or ".", cwd), *(read(project, tool, one, folder) for one in begins)]
    worst = next((one for one in found if one.action == "file.outside"), found[0])
    is_hidden = not is_clear or any(one.input["hidden"] for one in found) or any(map(project.matches_hidden, chosen))
    folders = dict.fromkeys((folder, *(project.resolve(one, folder) for one in begins)))
    is_hidden = is_hidden or any(project.holds_hidden(one, chosen) for one in folders)
    is_guarded = not is_clear or any(one.input["guarded"] for one in found)
    scan = scan_key(tool, folder, list(patterns))
    return Intent(worst.action, {**worst.input, "hidden": is_hidden, "guarded": is_guarded}, FileUse(scan=scan))


def _begins(pattern: str, folder: str) -> str:
    """Return where the names that match a pattern begin: its names before the first with a wildcard."""
    parts = pattern.split("/")
    fixed = next((at for at, part in enumerate(parts) if any(one in part for one in "*?")), len(parts))
    return "/".join(parts[:fixed]) or ("/" if pattern[:1] == "/" else folder)


def edit(project: Project, tool: str, path: str, cwd: str, *, is_whole: bool) -> Intent:
    """Return the intent of writing a file: PROVIDES where it does not exist, else MUTATES.

    Args:
        project: the project.
        tool: name of the agent's tool.
        path: the file.
        cwd: the working directory.
        is_whole: whether it is written whole; otherwise the edit carries its context (``files.uses``).
    """
    place = project.place(path, cwd)
    return _file("file.edit" if place.exists else "file.create", tool, place, "write", is_whole=is_whole)


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
    readings = [read_words(one) for one in commands]
    named = places_of(project, readings, project.absolute(cwd))
    each = [in_order(one.kinds | more) for one, more in zip(readings, named.kinds, strict=True)]
    also = {"unknown"} if is_opaque or named.is_partial else set[str]()
    kinds = in_order(also.union({"outside"} if named.is_outside else (), *each))
    folder = project.place(cwd, cwd)
    vectors = (
        [] if is_opaque else [(_vector(one), of_one == ["read"]) for one, of_one in zip(commands, each, strict=True)]
    )
    is_held = folder.is_inside and UNCONFINED.isdisjoint(kinds)
    conditions = terms.of(text, vectors, str(project.root), is_held=is_held)
    return Intent(
        "command.run",
        {
            "command": text,
            "cwd": folder.path,
            "kinds": kinds,
            **conditions,
            "tool": tool,
            "touches": named.touches,
            "guarded": named.is_guarded or (not HARMLESS.issuperset(kinds) and project.names_guarded(text)),
            "hidden": named.is_hidden or (named.holds_hidden and not conditions["confined"]),
        },
        FileUse(scan=scan_key(text, folder.path)),
    )


def _vector(command: SimpleCommand) -> list[str] | None:
    """Return the argument vector of a command; None where the shell replaces some of its words."""
    if any(word.is_expanded or word.is_pattern for word in command.words):
        return None
    return [word.text for word in command.words]


def patch(project: Project, tool: str, text: str, cwd: str) -> Intent:
    """Return the intent of applying a patch in the form of Codex, which leases each file that it names.

    Its updates carry their context; files that it adds, or moves another one to, are written whole.

    Args:
        project: the project.
        tool: name of the agent's tool.
        text: the patch.
        cwd: the working directory.
    """
    names = [[name.strip() for name in form.findall(text)] for form in (_CHANGED, _DELETED)]
    changed, deleted = ([project.place(name, cwd) for name in each] for each in names)
    places = [*changed, *deleted]
    writes = {place.path for place in changed if place.is_inside}
    deletes = {place.path for place in deleted if place.is_inside} - writes
    is_clear = bool(places) and all(is_plain(name) for each in names for name in each)
    added = {project.place(name.strip(), cwd).path for name in _WHOLE.findall(text)}
    files = FileUse((*sorted(writes), *sorted(deletes)), frozenset(writes & added)) if is_clear else FileUse()
    return Intent(
        "file.patch",
        {
            "patch": text,
            "cwd": project.place(cwd, cwd).path,
            "writes": sorted(writes) if is_clear else [EVERYTHING],
            "deletes": sorted(deletes) if is_clear else [],
            "outside": sorted({place.path for place in places if not place.is_inside}),
            "unclear": not is_clear,
            "tool": tool,
            "guarded": any(place.is_guarded for place in places),
            "hidden": any(place.is_hidden for place in places),
        },
        files,
    )


def fetch(tool: str, url: str) -> Intent:
    """Return the intent of reading a page of the web.

    Raises:
        RefusedError: ``AMBIGUOUS_URL`` where two readers of the URL would reach different hosts.
    """
    found = canonical_url(url)
    return Intent("web.fetch", {"url": found.text, "host": found.host.strip("[]"), "tool": tool})


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
    return replace(place, path=EVERYTHING if place.path == "/" else f"{place.path}/*")


def _file(action: str, tool: str, place: Place, access: str, *, is_whole: bool = False) -> Intent:
    common = {"path": place.path, "tool": tool, "guarded": place.is_guarded, "hidden": place.is_hidden}
    if place.is_inside:
        paths = (place.path,)
        return Intent(action, common, FileUse(paths, frozenset(paths if is_whole else ())))
    return Intent("file.outside", {**common, "access": access})
