"""Reconstruction of the cases of past proposals, and construction of cases for hypothetical proposals.

The policy tools use this module. It only reads the log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Required, TypedDict, Unpack, cast

from world.core import Domain, recompute
from world.core.declarations.resources import declared_scope
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentInstance
from world.model.patch import apply_patches
from world.model.snapshot import SnapshotView
from world.pipeline.history_sums import PastAt
from world.pipeline.unit_of_work import Lookup
from world.read_models.archive import Archive
from world.read_models.counting import Counts
from world.state.ports import Case, Earlier, LookupConditions
from world.state.proposal import Proposal

MAX_VIEWS: Final = 64
"""Number of views of worlds in the cache."""

MAX_ACTORS: Final = 1_024
"""Number of parsed actors in the cache."""


class CaseFacts(TypedDict, total=False):
    """Members of a case that are copied unchanged; see ``world.state.ports.Case``."""

    base_world: Required[str]
    schema_hash: Required[str]
    branch: Required[str]
    submitted_at: Required[int]
    earlier_attempts: Required[int]
    scope_rules: int


@dataclass(frozen=True, slots=True)
class Cases:
    """Constructor of cases from a log.

    Args:
        archive: archive of the log.
        domain: provides computed values and the specs of actions; None leaves both out.
        counts: cached counts of earlier proposals, for many cases; None queries the index for each count.
    """

    archive: Archive
    domain: Domain | None
    counts: Counts | None = None
    _views: OrderedDict[str, SnapshotView] = field(default_factory=OrderedDict, repr=False, compare=False)

    def past(self, proposal: Proposal, binding: Mapping[str, Any], before: int) -> Case:
        """Return the case of a recorded proposal as of its own time.

        Args:
            proposal: the proposal.
            binding: the binding by which it was judged.
            before: the position of the ruling; the events before it are the case's history.

        Raises:
            RefusedError, DamagedLogError: where the base world cannot be read.
        """
        submitted = proposal.submitted
        return self.made(
            proposal.intent,
            submitted.actor,
            binding,
            proposal_id=submitted.proposal_id,
            lookup=None if self.counts is None else cast(Lookup, _CountedHistory(self.archive, self.counts, submitted)),
            base_world=submitted.base_world,
            view=self.view(submitted.base_world),
            schema_hash=submitted.schema_hash,
            branch=submitted.branch,
            submitted_at=submitted.at,
            earlier_attempts=submitted.attempt - 1,
            before=before,
            scope_rules=proposal.scope_rules,
        )

    def made(
        self,
        intent: IntentInstance,
        actor: ActorRef,
        binding: Mapping[str, Any],
        *,
        proposal_id: str,
        view: SnapshotView,
        before: int,
        lookup: Lookup | None = None,
        **facts: Unpack[CaseFacts],
    ) -> Case:
        """Return a case.

        Args:
            intent: the intent.
            actor: the proposing actor.
            binding: the actor's binding, in wire form.
            proposal_id: id of the proposal.
            view: the view of the base world.
            before: the position before which events are the case's history.
            lookup: finds earlier proposals; None uses the archive.
            **facts: the other members of the case.
        """
        spec = None if self.domain is None else self.domain.schema.actions.get(intent.body.type)
        return Case(
            proposal_id=proposal_id,
            intent=intent,
            actor=actor,
            binding=freeze(binding),
            action=None if spec is None else spec.spec,
            view=view,
            history=PastAt(
                lookup or cast(Lookup, self.archive), before, proposal_id
            ),  # the history queries earlier proposals only
            manifest=declared_of(self.domain, intent, view),
            **facts,
        )

    def view(self, world_id: str) -> SnapshotView:
        """Return the view of a world for rules.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``.
        """
        known = self._views.get(world_id)
        return self._keep(world_id, self.archive.state(world_id)) if known is None else known

    def follow(self, sealed: WorldSealed) -> None:
        """Cache the view of a newly sealed world if that of its parent is cached, without a lookup."""
        parent = self._views.get(sealed.parent or "")
        if sealed.data is None and parent is not None:
            self._keep(sealed.world_id, apply_patches(parent.data, sealed.patches), parent)

    def _keep(self, world_id: str, data: FrozenDict, parent: SnapshotView | None = None) -> SnapshotView:
        view = self._views[world_id] = self.seen(data, parent)
        if len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def seen(self, data: FrozenDict, earlier: SnapshotView | None = None) -> SnapshotView:
        """Return the view of a state for rules, with computed values; unchanged ones are shared with ``earlier``."""
        if self.domain is None:
            return SnapshotView(data, FrozenDict())
        known = (None, None) if earlier is None else (earlier.data, earlier.computed)
        return SnapshotView(data, recompute(self.domain, data, *known))


def declared_of(domain: Domain | None, intent: IntentInstance, view: SnapshotView) -> FrozenDict | None:
    """Return the manifest that an intent's action declares; None where it has none or it cannot be evaluated."""
    action = None if domain is None else domain.schema.actions.get(intent.body.type)
    if action is None or not action.touches:
        return None
    try:
        scope = declared_scope(action.touches, action=intent.body.type, given=intent.body.input, view=view)
    except RefusedError:
        return None
    declared: FrozenDict = freeze({"scope": scope})
    return declared


@dataclass(frozen=True, slots=True)
class _CountedHistory:
    """Lookup of the proposals before a submitted one, limited to the queries of a history."""

    archive: Archive
    counts: Counts
    own: ProposalSubmitted

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        compared: Any = {name: value for name, value in conditions.items() if name != "other_than"}
        return self.counts.count(before, self.own, **compared)

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        return self.archive.earlier(before, most, **conditions)

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        return self.archive.inputs(found)
