"""History of adopted, retired and shadow policies in the log, and lookup of policies by name and hash.

The policy commands use this module. Source: design section 6; CARD-policy, CARD-audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from authority import Policy
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.model.record import WireForm
from world.read_models.decoding import decoded, registry_events
from worldprotocol.api.realm import Realm


@dataclass(frozen=True, slots=True)
class PolicyChange(WireForm):
    """Adoption or retirement of a policy, or its configuration as a shadow policy.

    Args:
        position: position of the event.
        at: time of the event, ms since 1970-01-01 UTC.
        what: the kind of change.
        name: name of the policy.
        policy_hash: hash of the policy.
        replaced: for an adoption: the hash of the previous policy in force under that name, or None.
        by: the recorded author of the change.
        reason: the reason of a retirement.
        policy: the policy's description; None for a retirement.
    """

    position: int
    at: int
    what: Literal["adopted", "retired", "shadowed"]
    name: str
    policy_hash: str
    replaced: str | None
    by: str
    reason: str
    policy: Mapping[str, Any] | None
    WIRE: ClassVar = "position at event=what name hash=policy_hash by replaced? reason=why?"

    @property
    def why(self) -> str | None:
        """Its reason; None without one."""
        return self.reason or None


def changes_of(world: Realm, upto: int | None = None) -> list[PolicyChange]:
    """Return all adoptions and retirements, and the configured shadow policies, in the order of the log.

    Args:
        world: an open realm.
        upto: position of the last event to include; None includes all.
    """
    policy_changes: list[PolicyChange] = []
    in_force: dict[str, str] = {}
    for logged in registry_events(world.log, PolicyAdopted, PolicyRetired, ShadowConfigured, upto=upto):
        event = decoded(logged)
        place = (logged.position, event.at)
        if isinstance(event, PolicyAdopted):
            replaced = in_force.get(event.name)  # earlier logs do not record it
            policy_changes.append(
                PolicyChange(*place, "adopted", event.name, event.policy_hash, replaced, event.by, "", event.policy),
            )
            in_force[event.name] = event.policy_hash
        elif isinstance(event, PolicyRetired):
            policy_changes.append(
                PolicyChange(*place, "retired", event.name, event.policy_hash, None, event.by, event.reason, None)
            )
            in_force.pop(event.name, None)
        elif isinstance(event, ShadowConfigured) and event.name is not None and event.policy_hash is not None:
            policy_changes.append(
                PolicyChange(*place, "shadowed", event.name, event.policy_hash, None, event.by, "", event.policy)
            )
    return policy_changes


@dataclass(frozen=True, slots=True)
class FoundPolicy(WireForm):
    """Policy that a text refers to.

    Args:
        description: name, hash and rules, as an adoption records them.
        origin: ``in force``, ``adopted`` (and not in force any more), ``shadowed`` (and never adopted), or ``at hand``.
        position: position of the event that records it, None for a loaded policy.
    """

    description: Mapping[str, Any]
    origin: Literal["in force", "adopted", "shadowed", "at hand"]
    position: int | None = None
    WIRE: ClassVar = "name hash origin position?"

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.description["name"])

    @property
    def hash(self) -> str:
        """Its hash."""
        return str(self.description["hash"])

    @property
    def label(self) -> str:
        """Its name and the first digits of its hash."""
        return f"{self.name}@{self.hash[:12]}"


def find_policy(given: str, changes: Sequence[PolicyChange], at_hand: Callable[[str], Policy]) -> FoundPolicy:
    """Return the policy that a text refers to: that in force, otherwise the loaded one, otherwise the last in the log.

    Args:
        given: a name, ``NAME@HASHPREFIX``, a policy file or a reference.
        changes: the policy changes of the log.
        at_hand: returns a policy by its name, file or reference, or raises ``RefusedError``.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``AMBIGUOUS``, and the errors of loading a policy.
    """
    name, sign, prefix = given.partition("@")
    if sign:
        return _by_hash(name, prefix, changes, at_hand)
    last = last_of(given, changes)
    if last is not None and last.what == "adopted":
        return _recorded(last, changes)
    try:
        return FoundPolicy(at_hand(given).description, "at hand")
    except RefusedError as refused:
        known = [one for one in changes if one.name == given and one.policy is not None]
        if not known or refused.code != "UNKNOWN_POLICY":
            raise
        adopted = [one for one in known if one.what == "adopted"]
        return _recorded((adopted or known)[-1], changes)


def last_of(name: str, changes: Sequence[PolicyChange]) -> PolicyChange | None:
    """Return the last adoption or retirement of a policy, or None where it was never adopted."""
    return next((one for one in reversed(changes) if one.name == name and one.what != "shadowed"), None)


def _by_hash(name: str, prefix: str, changes: Sequence[PolicyChange], at_hand: Callable[[str], Policy]) -> FoundPolicy:
    recorded = [one for one in changes if one.policy is not None and one.name == name]
    hashes = {one.policy_hash for one in recorded}
    try:
        present: Mapping[str, Any] | None = at_hand(name).description
    except RefusedError:
        present = None
    known = hashes | ({str(present["hash"])} if present is not None else set())
    fitting = sorted(one for one in known if one.startswith(prefix))
    if len(fitting) > 1:
        some = ", ".join(one[:12] for one in fitting)
        raise RefusedError(
            ErrorCode.AMBIGUOUS, f"{name}@{prefix} fits several policies ({some}); write more of the hash."
        )
    if not fitting:
        some = ", ".join(f"{name}@{one[:12]}" for one in sorted(known)) or "none of that name"
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"There is no policy {name}@{prefix} in the log or loaded; there is {some} (`worldctl policy list --all`).",
            policy=name,
            known=sorted(known),
        )
    if fitting[0] in hashes:
        fits = [one for one in recorded if one.policy_hash == fitting[0]]
        adopted = [one for one in fits if one.what == "adopted"]
        return _recorded((adopted or fits)[-1], changes)
    assert present is not None
    return FoundPolicy(present, "at hand")


def _recorded(change: PolicyChange, changes: Sequence[PolicyChange]) -> FoundPolicy:
    assert change.policy is not None
    if change.what == "shadowed":
        return FoundPolicy(change.policy, "shadowed", change.position)
    is_last = last_of(change.name, changes) is change
    return FoundPolicy(change.policy, "in force" if is_last else "adopted", change.position)
