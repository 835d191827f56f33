"""Checks of the events of the realm's registry: creation, domain, keys, bindings and policies."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from world.audit.replay import Step
from world.error_codes import ErrorCode
from world.events.access_events import RightGranted, RightRevoked, TokenCreated, TokenRevoked
from world.events.lease_events import KeyRegistered
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.realm_events import (
    ActorBound,
    DomainAdopted,
    EnforcementChosen,
    LogArchived,
    LogFounded,
    WorkspaceRegistered,
)
from world.model.decision import voters
from world.model.identity import (
    policy_hash,
    schema_hash,
)
from world.state.realm_state import RealmState

__all__ = ["RegistryChecks"]

_KEY_BYTES: Final = 32
"""Length of an Ed25519 public key."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
"""SHA-256 in hex."""

_MODES: Final = frozenset({"enforcing", "trusting"})


class RegistryChecks:
    """Checks of registry events, before each event is folded.

    Args:
        realm: the state before the event, which the caller folds.
        bad: called with a code and a sentence for each fault.
    """

    def __init__(self, realm: RealmState, bad: Callable[[ErrorCode, str], None]) -> None:
        """Create the checks, without a chosen enforcement mode."""
        self._realm = realm
        self._bad = bad
        self._modes: set[str] = set()  # chosen enforcement modes; a worker records its mode before it executes
        self.registry: Mapping[str, Step] = {
            LogFounded.TOPIC: self._founded,
            EnforcementChosen.TOPIC: self._enforcement,
            LogArchived.TOPIC: self._archived,
            WorkspaceRegistered.TOPIC: self._workspace,
            DomainAdopted.TOPIC: self._domain,
            ActorBound.TOPIC: self._bound,
            RightGranted.TOPIC: self._right,
            RightRevoked.TOPIC: self._right_revoked,
            TokenCreated.TOPIC: self._token,
            TokenRevoked.TOPIC: self._token_revoked,
            PolicyAdopted.TOPIC: self._policy,
            PolicyRetired.TOPIC: self._retired,
            ShadowConfigured.TOPIC: self._shadow,
            KeyRegistered.TOPIC: self._key,
        }

    def _founded(self, event: LogFounded, _: int) -> None:
        if self._realm.position != 0:
            self._bad(ErrorCode.BAD_REFERENCE, "only the first event of a log may found it")
        if event.format != 1 or event.logic:
            self._bad(
                ErrorCode.BAD_EVENT,
                f"its format is {event.format} with the logic {event.logic}; supported is format 1 without logic",
            )
        self._enforcement(event, 1)

    def note_mode(self, event: LogFounded | EnforcementChosen) -> None:
        """Note an enforcement mode that was chosen before the snapshot of a cut log."""
        self._modes.add(event.enforcement)

    def _enforcement(self, event: LogFounded | EnforcementChosen, _: int) -> None:
        self._modes.add(event.enforcement)
        if event.enforcement not in _MODES:
            self._bad(ErrorCode.BAD_EVENT, f"the enforcement {event.enforcement!r} does not exist")

    def _archived(self, event: LogArchived, position: int) -> None:
        before = self._realm.archived
        if not (0 if before is None else before.upto) < event.upto < position:
            self._bad(ErrorCode.BAD_REFERENCE, f"the log cannot be cut after event {event.upto}")
        for name, value in (("root", event.root), ("manifest", event.manifest), ("snapshot", event.snapshot)):
            if not _DIGEST.fullmatch(value):
                self._bad(ErrorCode.BAD_EVENT, f"its {name} is no hash")

    def _workspace(self, event: WorkspaceRegistered, _: int) -> None:
        registered = self._realm.workspace
        if registered is not None and registered.workspace_id == event.workspace_id:
            self._bad(ErrorCode.BAD_REFERENCE, f"the workspace {event.workspace_id} is registered already")

    def _domain(self, event: DomainAdopted, _: int) -> None:
        if schema_hash(event.schema) != event.schema_hash:
            self._bad(ErrorCode.WRONG_HASH, f"the schemaHash {event.schema_hash} is not that of the schema")
        if event.previous != (self._realm.schema_hash or None):
            self._bad(
                ErrorCode.BAD_REFERENCE,
                f"the previous domain is {self._realm.schema_hash or None}, not {event.previous}",
            )

    def _key(self, event: KeyRegistered, _: int) -> None:
        try:
            is_key = len(base64.b64decode(event.public_key, validate=True)) == _KEY_BYTES
        except ValueError:
            is_key = False
        if not is_key:
            self._bad(ErrorCode.BAD_EVENT, f"the public key is not the base64 of {_KEY_BYTES} bytes")

    def _bound(self, event: ActorBound, _: int) -> None:
        if event.actor_id not in self._realm.actors:
            self._bad(ErrorCode.BAD_REFERENCE, f"the actor {event.actor_id!r} is not registered")
        policy = event.binding.get("policy")
        if policy is not None and policy not in self._realm.policies:
            self._bad(ErrorCode.BAD_REFERENCE, f"the policy {policy!r} was not adopted")
        for member in voters(event.binding):
            if member not in self._realm.actors:
                self._bad(ErrorCode.BAD_REFERENCE, f"the member {member!r} of a tribunal is not registered")

    def _right(self, event: RightGranted, _: int) -> None:
        if event.actor_id not in self._realm.actors:
            self._bad(ErrorCode.BAD_REFERENCE, f"the actor {event.actor_id!r} is not registered")
        if event.redaction is not None and event.right != "reader":
            self._bad(ErrorCode.BAD_EVENT, f"the right {event.right} has rules of redaction")

    def _right_revoked(self, event: RightRevoked, _: int) -> None:
        if event.right not in self._realm.rights.get(event.actor_id, {}):
            self._bad(ErrorCode.BAD_REFERENCE, f"the actor {event.actor_id!r} did not have the right {event.right}")

    def _token(self, event: TokenCreated, _: int) -> None:
        if event.actor_id not in self._realm.actors:
            self._bad(ErrorCode.BAD_REFERENCE, f"the actor {event.actor_id!r} is not registered")
        if not _DIGEST.fullmatch(event.digest):
            self._bad(ErrorCode.BAD_EVENT, "the digest of the token is not SHA-256 in hex")

    def _token_revoked(self, event: TokenRevoked, _: int) -> None:
        if event.token_id not in self._realm.tokens:
            self._bad(ErrorCode.BAD_REFERENCE, f"the token {event.token_id} was not in force")

    def _policy(self, event: PolicyAdopted, _: int) -> None:
        self._check_policy(event, event.policy)
        known = self._realm.policies.get(event.name)
        before = None if known is None else known.policy_hash
        if event.previous not in (None, before):
            self._bad(ErrorCode.BAD_REFERENCE, f"the previous policy is {before}, not {event.previous}")

    def _check_policy(self, event: PolicyAdopted | ShadowConfigured, policy: Mapping[str, Any]) -> None:
        """Compare the recorded hash and name of a policy with the policy."""
        expected = policy_hash(policy)
        if not expected == policy.get("hash") == event.policy_hash:
            self._bad(ErrorCode.WRONG_HASH, f"the policyHash of the policy is {expected}, not {event.policy_hash}")
        if policy.get("name") != event.name:
            self._bad(ErrorCode.BAD_REFERENCE, f"the policy is {policy.get('name')!r}, not {event.name!r}")

    def _retired(self, event: PolicyRetired, _: int) -> None:
        known = self._realm.policies.get(event.name)
        if known is None or known.policy_hash != event.policy_hash:
            self._bad(
                ErrorCode.BAD_REFERENCE, f"the policy {event.name!r} with the hash {event.policy_hash} was not in force"
            )
        bound = [name for name, one in self._realm.bindings.items() if one.get("policy") == event.name]
        if bound:
            self._bad(
                ErrorCode.BAD_REFERENCE,
                f"the policy {event.name!r} was retired while {', '.join(bound)} were bound to it",
            )

    def _shadow(self, event: ShadowConfigured, _: int) -> None:
        unknown = [actor_id for actor_id in event.actors if actor_id not in self._realm.actors]
        if unknown:
            self._bad(ErrorCode.BAD_REFERENCE, f"the actors {', '.join(unknown)} are not registered")
        if event.policy is not None:
            self._check_policy(event, event.policy)
        elif (event.name, event.policy_hash) != (None, None):
            self._bad(ErrorCode.BAD_REFERENCE, f"the policy {event.name!r} is missing")
