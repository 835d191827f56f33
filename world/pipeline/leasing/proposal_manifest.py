"""What a proposal needs: a manifest of what its action declares to touch and the state that it may write (KM-2.2)."""

from __future__ import annotations

from functools import lru_cache
from itertools import takewhile
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from world.core.declarations.resources import declared_scope
from world.errors import RefusedError
from world.klis.kernel import judge
from world.klis.manifest import ENGINE_ONLY, Manifest, read_manifest
from world.klis.predicate import Predicate
from world.klis.session import Session
from world.klis.settings import KlisSettings
from world.model.decision import Ruling
from world.model.intent import IntentScope
from world.model.scope_patterns import SCOPE_RULES, parse_pattern
from world.pipeline.leasing.klis_settings_in_force import know_types
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["ProposalNeeds", "declared_manifest", "manifest_of", "needs_of", "state_resources"]

MAX_STATE_DEPTH: Final = 32
"""Names of a scope pattern that its resource keeps; a longer pattern is leased by a prefix of it."""


class ProposalNeeds(Struct, frozen=True):
    """What a proposal needs before it can be decided.

    Args:
        manifest: its manifest; None where it touches nothing; the refusal where its manifest is invalid.
        is_free: whether it is decided at once: granted, or rejected for its manifest.
    """

    manifest: Manifest | RefusedError | None
    is_free: bool


def needs_of(work: UnitOfWork, proposal: Proposal, ruling: Ruling) -> ProposalNeeds:
    """Return what a proposal needs whose ruling approves, and whether that is free at this moment."""
    know_types(work, proposal.submitted.actor.actor_id)
    try:
        manifest = manifest_of(work, proposal, ruling.approved_scope)
    except RefusedError as refused:
        return ProposalNeeds(refused, is_free=True)
    if manifest is None:
        return ProposalNeeds(None, is_free=True)
    ledger, agent = work.realm.klis, manifest.agent_id
    rank = ledger.agents.get(agent, (work.klis_now, agent))  # the rank that its first manifest is going to give it
    session = ledger.sessions.get((agent, manifest.session_id)) or Session(agent, manifest.session_id, rank)
    return ProposalNeeds(manifest, judge(ledger, session, manifest.triples) == "Granted")


def declared_manifest(work: UnitOfWork, proposal: Proposal) -> list[dict[str, Any]] | None:
    """Return the scope that a proposal's action declares, evaluated on the world it was submitted on.

    Returns:
        Items ``{"predicate", "resource", ...}``; None where the action declares nothing.

    Raises:
        RefusedError: ``INVALID_MANIFEST``.
    """
    body = proposal.intent.body
    action = work.domain.schema.actions.get(body.type)
    if action is None or not action.touches:
        return None
    view = work.snapshot(proposal.submitted.base_world).view
    return declared_scope(action.touches, action=body.type, given=body.input, view=view)


def manifest_of(work: UnitOfWork, proposal: Proposal, scope: IntentScope | None) -> Manifest | None:
    """Return the manifest of a proposal: the state that ``scope`` permits it to write, and what its action declares.

    None is for a proposal that may write nothing and touches nothing: it needs no leases.

    Raises:
        RefusedError: ``INVALID_MANIFEST``, and what ``world.klis.manifest.read_manifest`` refuses.
    """
    settings = work.realm.klis.in_force
    declared = declared_manifest(work, proposal)
    most = min(MAX_STATE_DEPTH, settings.max_depth - 1)
    state = tuple(state_resources(proposal.branch, scope, most, proposal.scope_rules))
    if not state and not declared:
        return None
    whose = {"session_id": proposal.proposal_id, "agent_id": proposal.submitted.actor.actor_id}
    if declared is None:
        same = _state_manifest(state, settings)
        return Manifest(
            ver=same.ver,
            session_id=whose["session_id"],
            agent_id=whose["agent_id"],
            declared=same.declared,
            triples=same.triples,
            document={**same.document, **whose},
        )
    document = {"ver": "1.0", **whose, "scope": [*_mutations(state), *declared]}
    return read_manifest(document, settings=settings, types=work.types, wide=ENGINE_ONLY)


@lru_cache(maxsize=4_096)
def _state_manifest(state: tuple[str, ...], settings: KlisSettings) -> Manifest:
    """Return what the manifests of all proposals have in common that write there and touch nothing else."""
    document = {"ver": "1.0", "session_id": "any", "agent_id": "any", "scope": _mutations(state)}
    return read_manifest(document, settings=settings, wide=ENGINE_ONLY)


def _mutations(state: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"predicate": Predicate.MUTATES.value, "resource": text} for text in state]


def state_resources(
    branch: str, scope: IntentScope | None, most: int = MAX_STATE_DEPTH, rules: int = SCOPE_RULES
) -> list[str]:
    """Return the ``STATE:`` subtrees that a scope allows to write on a branch; no scope is the whole state.

    A pattern is leased from its first ``*`` upwards, and with at most so many names: ``todos.*.done`` is
    ``STATE:/main/todos/*``.

    Args:
        branch: the branch's name.
        scope: the approved scope.
        most: names of one pattern that its resource keeps.
        rules: version of the scope rules (``world.model.scope_patterns``).
    """
    if scope is None or scope.allowed_paths is None:
        return [_state_resource((branch,))]
    return [_pattern_resource(branch, pattern, most, rules) for pattern in scope.allowed_paths]


@lru_cache(maxsize=16_384)
def _pattern_resource(branch: str, pattern: str, most: int, rules: int) -> str:
    fixed = [
        name for name in takewhile(lambda name: name is not None, parse_pattern(pattern, rules)) if name is not None
    ]
    if rules < 2:
        fixed = ["\\*" if name == "*" else name for name in fixed]  # how version 1 leased the name `*`
    return _state_resource((branch, *fixed[:most]))


@lru_cache(maxsize=16_384)
def _state_resource(names: tuple[str, ...]) -> str:
    return f"STATE:/{'/'.join(_escaped(name) for name in names)}/*"


def _escaped(name: str) -> str:
    """Return a name as one segment of a resource path; different names stay different."""
    if name in ("", ".", ".."):
        return "%" + "".join(f"{ord(character):02X}" for character in name)
    return quote(name, safe="~!$&'()+,;=:@")
