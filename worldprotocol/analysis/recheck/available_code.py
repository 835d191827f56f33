"""Comparison of the loaded code with the code that a log records: domain, policies and distributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from authority import PolicyRegistry, StandardAuthority, rebuilt_policy
from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.realm_events import DomainAdopted
from world.state.realm_state import RealmState
from worldprotocol.analysis.recheck.results import Changed
from worldprotocol.api.bootstrap import Components
from worldprotocol.api.code_fingerprints import changed_versions, is_whole

__all__ = ["AvailableCode"]


class AvailableCode:
    """The loaded domain and policies, beside what the log adopted.

    Args:
        components: what this process has loaded.
        realm: the state that the recheck folds; adoptions are read from it.
        is_live: whether the components act on the log at the same time; the form of their domain stays then.
    """

    def __init__(self, components: Components, realm: RealmState, *, is_live: bool = False) -> None:
        """Start without rebuilt policies."""
        self._is_live = is_live
        self._components = components
        self._realm = realm
        self._rebuilt: dict[str, StandardAuthority] = {}
        self._changed: Changed | None = None

    def changed_since(self) -> Changed:
        """Return the differences between the loaded code and the code in force at this point."""
        if self._changed is None:
            adopted, domain = self._realm.domain, self._components.domain
            recorded = {} if adopted is None else adopted.sources
            policies = self._realm.policies.items()
            self._changed = Changed(
                schema=self._realm.schema_hash != domain.schema.hash,
                code=domain.changed(recorded),
                policies=tuple(
                    sorted(name for name, one in policies if self.hash_of(name, one.policy) != one.policy_hash)
                ),
                distributions=() if adopted is None else changed_versions(adopted, domain),
                is_whole=adopted is None or is_whole(adopted),
            )
        return self._changed

    def take_form(self, event: DomainAdopted) -> None:
        """Compute the steps after an adoption by the form and the rules that it recorded."""
        if not self._is_live:
            self._components.domain.take_form(event.schema_hash, event.rules or 1)

    def forget_changes(self, event: DomainAdopted) -> None:
        """Compare again at the next call of ``changed_since``: an adoption followed, whose form is taken."""
        self.take_form(event)
        self._changed = None

    def note_policy(self, event: PolicyAdopted | PolicyRetired | ShadowConfigured) -> None:
        """Rebuild an adopted policy from the log where the loaded one of its name differs."""
        self._changed = None
        described = None if isinstance(event, PolicyRetired) else event.policy
        if event.name is None or event.policy_hash is None or described is None:
            return  # shadowing ended
        if self.hash_of(event.name) != event.policy_hash and event.policy_hash not in self._rebuilt:
            is_loaded = self.hash_of(event.name, described) == event.policy_hash  # and identified by an earlier release
            loaded = self._components.policies.get(event.name).hashed_like(described) if is_loaded else None
            rebuilt = loaded or rebuilt_policy(described, event.policy_hash)
            if rebuilt is not None:
                self._rebuilt[event.policy_hash] = StandardAuthority(PolicyRegistry([rebuilt]))

    def check_domain(self, event: DomainAdopted) -> Iterator[DivergenceError]:
        """Yield the code of the loaded domain that differs from the adopted code, under the same schema."""
        self.take_form(event)
        domain = self._components.domain
        if event.schema_hash != domain.schema.hash:
            return  # every step under that schema reports that it cannot be rechecked
        changed = domain.changed(event.sources)
        if changed:
            sources = domain.sources()
            yield DivergenceError(
                ErrorCode.CODE_CHANGED,
                f"The loaded code of {', '.join(changed)} differs from the adopted code, under the same schema; later "
                "steps are rechecked with the loaded code.",
                changed=list(changed),
                recorded={name: event.sources.get(name) for name in changed},
                at_hand={name: sources.get(name) for name in changed},
            )

    def check_policy(self, event: PolicyAdopted | ShadowConfigured) -> Iterator[DivergenceError]:
        """Yield that an adopted policy is neither loaded nor can be rebuilt from the log."""
        self.note_policy(event)
        if event.name is None or event.policy is None or event.policy_hash is None:
            return  # shadowing ended
        loaded = self.hash_of(event.name, event.policy)
        if loaded == event.policy_hash or event.policy_hash in self._rebuilt:
            return
        cause = "is not loaded" if loaded is None else "was loaded in another version than the one adopted"
        yield DivergenceError(
            ErrorCode.POLICY_NOT_AT_HAND if loaded is None else ErrorCode.POLICY_CHANGED,
            f"The policy {event.name!r} {cause}, and the log does not hold the code of its rules; its rulings are not "
            "rechecked. Recheck with the code of that time.",
            policy=event.name,
            recorded=event.policy_hash,
            **({} if loaded is None else {"at_hand": loaded}),
        )

    def hash_of(self, name: str, like: Mapping[str, Any] | None = None) -> str | None:
        """Return the hash of a loaded policy, of the form of a recorded one; None where none of the name is loaded."""
        try:
            return str(self._components.authority.describe_policy(name, like)["hash"])
        except RefusedError:
            return None

    def authority_for(self, name: str, policy_hash: str | None) -> Any:
        """Return the authority that judges by a policy: the loaded one, or one rebuilt from the adopted text.

        None where neither has the hash: another policy would give its own ruling, and not the recorded one.
        """
        rebuilt = self._rebuilt.get(policy_hash or "")
        if rebuilt is not None:
            return rebuilt
        return self._components.authority if policy_hash is None or self.hash_of(name) == policy_hash else None

    def other_schema(self, schema_hash: str, what: str) -> DivergenceError | None:
        """Return the error for a step that was made under another schema than the loaded domain's, or None.

        Args:
            schema_hash: schema of the step.
            what: the step, as the subject of the sentence.
        """
        loaded = self._components.domain.schema.hash
        if schema_hash == loaded:
            return None
        return DivergenceError(
            ErrorCode.CANNOT_RECHECK,
            f"{what} cannot be rechecked: it was made under schema {schema_hash[:12]}, and the loaded domain has "
            f"{loaded[:12]}. Recheck with the domain of that time.",
            recorded=schema_hash,
            at_hand=loaded,
        )
