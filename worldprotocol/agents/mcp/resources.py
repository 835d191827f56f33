"""Resources of the server: worlds, branches, the inbox, leases and proposals, as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

import mcp_types as types
from mcp.shared.exceptions import MCPError

from world.errors import RefusedError
from worldprotocol.agents.mcp.calls import own_proposal
from worldprotocol.agents.mcp.realm_access import McpActor
from worldprotocol.agents.mcp.session import McpRequest

__all__ = ["LISTED", "list_resources", "list_templates", "read_resource"]

BASE: Final = "worldprotocol://realm"
MIME: Final = "application/json"
NOT_FOUND_BEFORE_2026: Final = -32002
READ: Final = ("reader", "auditor")


@dataclass(frozen=True, slots=True)
class _Kind:
    """A resource, or a template of resources.

    Args:
        path: path of the URI; ``{name}`` is a part that the reader chooses.
        title: for people.
        description: for models.
        rights: rights of which an actor needs one.
        read: reads it; the second argument is the chosen part.
    """

    path: str
    title: str
    description: str
    rights: tuple[str, ...]
    read: Callable[[McpRequest, str], Awaitable[Any]]

    @property
    def uri(self) -> str:
        return BASE + self.path

    @property
    def is_template(self) -> bool:
        return "{" in self.path

    def match(self, uri: str) -> str | None:
        """Return the chosen part of a URI of this kind, empty where there is none; None for another URI."""
        pattern = re.sub(r"\\\{\w+\\\}", "([^/]+)", re.escape(self.uri))
        found = re.fullmatch(pattern, uri)
        if found is None:
            return None
        return unquote(found[1]) if found.groups() else ""


async def _leases(request: McpRequest, _: str) -> Any:
    actor = await request.access.identity()
    return await request.access.leases(own=not actor.has(*READ))


async def _proposal(request: McpRequest, proposal_id: str) -> Any:
    actor = await request.access.identity()
    if actor.has(*READ, "approver"):
        return await request.access.proposal(proposal_id)
    return await own_proposal(request, proposal_id)


_KINDS: Final = (
    _Kind(
        "/inbox",
        "Inbox",
        "Proposals that wait for your answer, each with the rules' outcomes and what an approval would do.",
        ("approver", "actor"),
        lambda request, _: request.access.inbox(),
    ),
    _Kind("/worlds", "Worlds", "The newest worlds.", READ, lambda request, _: request.access.worlds()),
    _Kind("/branches", "Branches", "The branches.", READ, lambda request, _: request.access.branches()),
    _Kind(
        "/leases", "Leases", "The leases in force: all of them for readers, else your own.", ("actor", *READ), _leases
    ),
    _Kind(
        "/worlds/HEAD/state",
        "Present state",
        "The data of the head of the active branch.",
        READ,
        lambda request, _: request.access.state("HEAD"),
    ),
    _Kind(
        "/worlds/{worldId}",
        "World",
        "A world with the patches from its parent.",
        READ,
        lambda request, name: request.access.world(name),
    ),
    _Kind(
        "/worlds/{worldId}/state",
        "State of a world",
        "The data of a world.",
        READ,
        lambda request, name: request.access.state(name),
    ),
    _Kind(
        "/proposals/{proposalId}",
        "Proposal",
        "A proposal with its ruling, answers, effects and decision.",
        ("actor", "approver", *READ),
        _proposal,
    ),
)

LISTED: Final = tuple(one.uri for one in _KINDS if not one.is_template)
"""URIs of the resources that are no templates."""


def list_resources(actor: McpActor) -> list[types.Resource]:
    """Return the resources that an actor has a right to."""
    return [
        types.Resource(uri=one.uri, name=one.path[1:], title=one.title, description=one.description, mime_type=MIME)
        for one in _KINDS
        if not one.is_template and actor.has(*one.rights)
    ]


def list_templates(actor: McpActor) -> list[types.ResourceTemplate]:
    """Return the templates of resources that an actor has a right to."""
    return [
        types.ResourceTemplate(
            uri_template=one.uri, name=one.path[1:], title=one.title, description=one.description, mime_type=MIME
        )
        for one in _KINDS
        if one.is_template and actor.has(*one.rights)
    ]


async def read_resource(request: McpRequest, uri: str) -> types.ReadResourceResult:
    """Return a resource.

    Args:
        request: the request.
        uri: its URI.

    Raises:
        MCPError: there is no such resource, or the actor has no right to it.
    """
    for one in _KINDS:
        part = one.match(uri)
        if part is None:
            continue
        actor = await request.access.identity()
        if not actor.has(*one.rights):
            raise _not_found(request, uri, f"it needs one of the rights {', '.join(one.rights)}")
        try:
            found = await one.read(request, part)
        except RefusedError as refused:
            raise _not_found(request, uri, f"{refused.message} [{refused.code}]") from None
        text = json.dumps(found, ensure_ascii=False, default=_plain)
        return types.ReadResourceResult(contents=[types.TextResourceContents(uri=uri, mime_type=MIME, text=text)])
    raise _not_found(request, uri, "resources/list and resources/templates/list name all kinds")


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else list(value)


def _not_found(request: McpRequest, uri: str, why: str) -> MCPError:
    code = types.INVALID_PARAMS if request.is_modern else NOT_FOUND_BEFORE_2026
    return MCPError(code, f"There is no resource {uri[:200]!r} for you: {why.rstrip('.')}.", {"uri": uri})
