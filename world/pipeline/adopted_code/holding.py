"""Holding: a proposal waits while the program's policy or domain differs from the one in force.

A policy that was not adopted decides nothing, and code that was not adopted executes nothing. A proposal that needs
either is held: nothing is decided about it until the policy or the domain is adopted, or a program with the adopted one
opens the realm. The record of a hold is ``proposal.held``. Sources: CARD-policy, WP-schema, WP-exec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import ProposalHeld
from world.events.realm_events import DomainAdopted
from world.model.decision import Ruling
from world.model.overruling import not_adopted, overruled
from world.pipeline.steps import Submitted
from world.pipeline.unit_budget import DUE_AT_ONCE
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Authority
from world.state.proposal import Proposal

__all__ = ["hold", "in_force", "is_held_back", "loaded_hash", "needs_other_code", "needs_other_policy", "released"]


_OF_EVERY_ACTION: Final = ("computed:", "state:")
"""Prefixes of the names of functions that every action uses: computed values, and validators of the state."""


def hold(work: UnitOfWork, proposal: Proposal) -> bool:
    """Hold a proposal that is not judged, where the loaded policy is not the adopted one; return whether it is held."""
    return _record(work, proposal, _policy_differs(work, proposal))


def is_held_back(work: UnitOfWork, proposal: Proposal) -> bool:
    """Hold a proposal where the schema or the code of its action differs; return whether it is held."""
    return not _is_as_adopted(work) and _record(work, proposal, _domain_differs(work, proposal))


def _is_as_adopted(work: UnitOfWork) -> bool:
    """Return whether the whole loaded domain is the one in force; ``same_code`` keeps the answer for the unit."""
    adopted = work.realm.domain
    if adopted is None or adopted is work.same_code:
        return True
    schema = work.domain.schema
    has_form = adopted.schema_hash == schema.hash and schema.rules == (adopted.rules or 1)
    if not (has_form or _has_schema(work, adopted)) or work.domain.changed(adopted.sources):
        return False
    work.same_code = adopted
    return True


def needs_other_code(work: UnitOfWork, proposal: Proposal) -> bool:
    """Return whether the schema or the code of a proposal's action differs from the domain in force."""
    return not _is_as_adopted(work) and _domain_differs(work, proposal) is not None


def needs_other_policy(work: UnitOfWork, proposal: Proposal) -> bool:
    """Return whether the loaded policy differs from the one in force for a proposal."""
    return _policy_differs(work, proposal) is not None


def _has_schema(work: UnitOfWork, adopted: DomainAdopted) -> bool:
    """Return whether the loaded domain has the schema in force; it computes under the recorded version of the rules."""
    if adopted.schema_hash != work.domain.schema.hash:
        return False
    return work.domain.take_form(adopted.schema_hash, adopted.rules or 1)


def released(work: UnitOfWork) -> Iterator[Submitted]:
    """Yield the held proposals that can be judged now; approved ones are started by ``take_over``."""
    left = [name for name in work.realm.held if work.realm.proposals[name].status == "submitted"]
    work.is_unfinished |= len(left) > DUE_AT_ONCE
    for proposal_id in left[:DUE_AT_ONCE]:
        proposal = work.realm.proposals[proposal_id]
        if (_domain_differs(work, proposal) or _policy_differs(work, proposal)) is None:
            yield Submitted(proposal)


def _record(work: UnitOfWork, proposal: Proposal, found: ProposalHeld | None) -> bool:
    if found is None:
        return False
    known = proposal.held
    if known is None or (known.cause, known.names, known.at_hand) != (found.cause, found.names, found.at_hand):
        work.emit(proposal.proposal_id, found)
    return True


def _domain_differs(work: UnitOfWork, proposal: Proposal) -> ProposalHeld | None:
    """Return the hold of a proposal whose action has other code, or another schema, than the domain in force."""
    adopted, name = work.realm.domain, proposal.proposal_id
    if adopted is None or adopted is work.same_code:
        return None
    if not _has_schema(work, adopted):
        loaded = work.domain.schema.hash
        return ProposalHeld(
            at=work.at, proposal_id=name, cause="schema", names=[], in_force=adopted.schema_hash, at_hand=loaded
        )
    action = proposal.submitted.intent.body.type
    used = {f"action:{action}", f"available:{action}"}
    changed = [one for one in work.domain.changed(adopted.sources) if one in used or one.startswith(_OF_EVERY_ACTION)]
    return ProposalHeld(at=work.at, proposal_id=name, cause="code", names=changed) if changed else None


def _policy_differs(work: UnitOfWork, proposal: Proposal) -> ProposalHeld | None:
    """Return the hold of a proposal whose policy in force is not the loaded one of that name."""
    binding = work.realm.bindings.get(proposal.submitted.actor.actor_id, {})
    adopted = work.realm.policies.get(binding.get("policy", ""))
    if adopted is None:
        return None
    loaded = loaded_hash(work.authority, adopted)
    if loaded == adopted.policy_hash:
        return None
    return ProposalHeld(
        at=work.at,
        proposal_id=proposal.proposal_id,
        cause="policy",
        names=[adopted.name],
        in_force=adopted.policy_hash,
        at_hand=loaded,
    )


def loaded_hash(authority: Authority, adopted: PolicyAdopted) -> str | None:
    """Return the hash of the loaded policy of an adopted one's name, None where none can be loaded.

    Args:
        authority: of this process.
        adopted: the adoption; one of an earlier release is compared by the hash of texts and whole files.
    """
    try:
        return str(authority.describe_policy(adopted.name, adopted.policy)["hash"])
    except RefusedError:
        return None


def _is_loaded(authority: Authority, adopted: PolicyAdopted, ruling: Ruling) -> bool:
    """Return whether the loaded policy gave a ruling and is the adopted one, by the hashes of their own forms."""
    if loaded_hash(authority, adopted) != adopted.policy_hash:
        return False
    return str(authority.describe_policy(adopted.name)["hash"]) == ruling.policy_hash


def in_force(work: UnitOfWork, ruling: Ruling, binding: Mapping[str, Any]) -> Ruling:
    """Reject a ruling of a policy that is not the adopted one; the policy in force always follows from the log."""
    if ruling.policy_hash is None:
        return ruling
    adopted = work.realm.policies.get(binding.get("policy", ""))
    if adopted is not None and adopted.policy_hash == ruling.policy_hash:
        return ruling
    if adopted is not None and "identity" not in adopted.policy and _is_loaded(work.authority, adopted, ruling):
        return replace(ruling, policy_hash=adopted.policy_hash)  # an earlier release adopted it
    return overruled(ruling, "policy in force", not_adopted(binding.get("policy")))
