"""Operation on names: ids that begin as a person wrote."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.commands import IdKind
from worldprotocol.operations.fields import ID, Name


class FindNames(RequestForm, frozen=True, kw_only=True):
    """What an id is of, and how it begins; a world is also found by a branch of which it is the head, or `HEAD`."""

    kind: IdKind
    begins: Annotated[Name, Meta(description="The beginning of an id.")]


class FoundNames(AnswerForm, frozen=True, kw_only=True):
    """Ids, at most 20: the one that is written in whole alone, else all that begin so."""

    ids: list[str]


@operation(
    "names.find",
    "GET /names",
    "reader auditor actor approver operator worker",
    kind="personal",
    example=(FindNames(kind="proposal", begins=ID[:8]), FoundNames(ids=[ID])),
)
def find_names(call: OperationCall, request: FindNames) -> FoundNames:
    """Find what begins with a text, of what the caller may read."""
    from worldprotocol.api.lookup.id_lookup import candidates, head_named

    realm, begins = call.hosted.realm, request.begins
    if request.kind == "lease":
        is_whole = call.visibility.reads_all and not call.visibility.rules
        held = call.view.klis.leases.items()
        own = (name for name, one in held if is_whole or one.session.agent_id == call.actor_id)
        found = sorted(name for name in own if name.startswith(begins))[:20]
    else:
        head = head_named(realm, begins) if request.kind == "world" else None
        named = [head] if head is not None else [name for _, name in candidates(realm, begins, (request.kind,))]
        found = [one for one in named if _may_see(call, request.kind, one)]
    return FoundNames(ids=[begins] if begins in found else found)


def _may_see(call: OperationCall, kind: str, name: str) -> bool:
    realm, visibility = call.hosted.realm, call.visibility
    if visibility.reads_all and not visibility.rules:
        return True
    if kind == "proposal":
        proposal = realm.proposal(name)
        return visibility.may_see(proposal) and "redacted" not in visibility.proposal(proposal, realm.log)
    sealed = realm.log.event_at(realm.archive.world(name).position)
    return visibility.reads_all and not any(is_hidden for _, is_hidden in visibility.events([sealed]))
