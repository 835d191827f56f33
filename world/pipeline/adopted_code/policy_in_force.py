"""Comparison of a loaded policy with the adopted one, by the rule under which the adoption was recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted
from world.model.decision import Ruling
from world.model.overruling import not_adopted, overruled
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Authority

__all__ = ["in_force", "loaded_hash"]


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
