"""Creation of cases from files and tests (``worldprotocol.policy_tools.cases``)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from authority import Policy, PolicyRegistry, StandardAuthority
from world.core import Domain, recompute
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.canonical_json import digest
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin, IntentScope
from world.model.snapshot import SnapshotView
from world.model.source import SourceRef
from world.state.ports import Case
from worldprotocol.api.time_parsing import moment_of
from worldprotocol.policy_tools.cases import DEFAULT_NOW_MS, BaseEntry, CaseDefaults, CaseEntry, PastEntry
from worldprotocol.policy_tools.recorded_cases import declared_of
from worldprotocol.testing.history import ListedHistory, Past

PROPOSAL: Final = "tested"
"""Proposal id of a case without a proposal."""

NO_SCHEMA: Final = digest({"schema": "none"})
"""Schema hash of a case without a domain."""

BRANCH: Final = "main"
"""Default branch of a case."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes cases for one policy.

    Args:
        policy: that is to judge them.
        domain: for computed values, the specs of actions and what they declare; None leaves these out.
        given: what cases have in common.
    """

    policy: Policy
    domain: Domain | None
    given: CaseDefaults

    def case(self, entry: CaseEntry) -> Case:
        """Return the case.

        Raises:
            RefusedError: ``INVALID_VALUE`` for a binding, and ``INVALID_CASES`` for a case, that make no sense.
        """
        now = _at(self._of(entry, "now"), DEFAULT_NOW_MS, DEFAULT_NOW_MS)
        schema_hash = NO_SCHEMA if self.domain is None else self.domain.schema.hash
        actor = self._actor(entry)
        body = _body(entry.intent.type, entry.intent.input, entry.intent.scope)
        intent = _issued(body, actor, schema_hash)
        past = [_past(one, now, schema_hash) for one in self._of(entry, "history") or ()]
        view = self._view(entry)
        spec = None if self.domain is None else self.domain.schema.actions.get(body.type)
        return Case(
            proposal_id=PROPOSAL,
            intent=intent,
            actor=actor,
            binding=self._binding(entry),
            action=None if spec is None else spec.spec,
            base_world=digest({"data": view.data}),
            view=view,
            schema_hash=schema_hash,
            branch=self._of(entry, "branch") or BRANCH,
            submitted_at=now,
            earlier_attempts=sum(one.times for one in past if one.intent_key == intent.intent_key),
            history=ListedHistory(past),
            manifest=self._manifest(entry, intent, view),
        )

    def _of(self, entry: CaseEntry, name: str) -> Any:
        own = getattr(entry, name)
        return getattr(self.given, name) if own is None else own

    def _actor(self, entry: CaseEntry) -> ActorRef:
        rendered = self._of(entry, "actor")
        if rendered is None:
            raise RefusedError(ErrorCode.INVALID_CASES, f"The case {entry.name!r} has no actor; name one.")
        return ActorRef(actor_id=rendered.id, kind=rendered.kind, name=rendered.name, meta=rendered.meta)

    def _binding(self, entry: CaseEntry) -> Mapping[str, Any]:
        rendered = self._of(entry, "binding") or {}
        if rendered.get("kind", "policy_rules") != "policy_rules":
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"The case {entry.name!r} has the binding {rendered['kind']!r:.80}, by which no policy judges; "
                "a case is judged by the policy, and its binding has the members ask, timeoutMs, onTimeout and then.",
                kind=rendered["kind"],
            )
        wire = {**rendered, "kind": "policy_rules", "policy": self.policy.name}
        return StandardAuthority(PolicyRegistry([self.policy])).check_binding(wire)

    def _view(self, entry: CaseEntry) -> SnapshotView:
        base = self._of(entry, "base") or BaseEntry()
        data: FrozenDict = freeze(base.data)
        if base.computed is not None:
            return SnapshotView(data, FrozenDict({f"computed.{name}": one for name, one in base.computed.items()}))
        return SnapshotView(data, FrozenDict() if self.domain is None else self._recomputed(data, entry))

    def _recomputed(self, data: FrozenDict, entry: CaseEntry) -> FrozenDict:
        assert self.domain is not None
        try:
            return recompute(self.domain, data)
        except Exception as error:  # the functions of computed values are the author's
            raise RefusedError(
                ErrorCode.INVALID_CASES,
                f"The computed values of the case {entry.name!r} cannot be made from its base.data: "
                f"{type(error).__name__}: {error}. Add what is missing there, or give base.computed.",
            ) from error

    def _manifest(self, entry: CaseEntry, intent: IntentInstance, view: SnapshotView) -> FrozenDict | None:
        rendered = self._of(entry, "manifest")
        return declared_of(self.domain, intent, view) if rendered is None else FrozenDict(freeze({"scope": rendered}))


def _body(action: str, given: Any, scope: list[str] | None) -> IntentBody:
    proposed = None if scope is None else IntentScope.read({"allowedPaths": scope})
    return IntentBody(type=action, input=given, scope_proposal=proposed)


def _issued(body: IntentBody, actor: ActorRef, schema_hash: str) -> IntentInstance:
    origin = IntentOrigin(projection_id="testing", source=SourceRef(kind="ui", event_id=PROPOSAL), actor=actor)
    return IntentInstance(
        body=body, intent_id=PROPOSAL, intent_key=body.key(schema_hash), meta=IntentMeta(origin=origin)
    )


def _past(entry: PastEntry, now: int, schema_hash: str) -> Past:
    """Return earlier proposals; whatever ended was approved."""
    decision = "approved" if entry.outcome is not None else entry.decision
    key = entry.intent_key or _body(entry.action, entry.input, entry.scope).key(schema_hash)
    at = _at(entry.at, now, now)
    return Past(entry.actor, entry.action, key, decision, entry.outcome, at, entry.input, entry.times)


def _at(rendered: int | str | None, now: int, otherwise: int) -> int:
    if rendered is None:
        return otherwise
    return rendered if isinstance(rendered, int) else moment_of(rendered, now)
