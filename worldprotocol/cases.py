"""Cases made again: what an Authority saw of a past proposal, or would see of one that nobody submitted.

The policy tools import this. Nothing is recorded here and no byte of a log changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from world.actor import ActorRef
from world.core import Domain, recompute
from world.core.declared import declared_scope
from world.errors import Refused
from world.events import WorldSealed
from world.frozen import FrozenDict, freeze
from world.intent import IntentInstance
from world.patch import Patch, apply_patches
from world.ports import Case
from world.proposal import Proposal
from world.snapshot import SnapshotView
from world.views.archive import Archive
from world.work import Lookup, PastAt

MAX_VIEWS: Final = 64
"""States of worlds kept ready."""


@dataclass(frozen=True, slots=True)
class Cases:
    """Makes cases from a log.

    Args:
        archive: of the log.
        domain: for computed values and what actions are like; None leaves both out.
    """

    archive: Archive
    domain: Domain | None
    _views: OrderedDict[str, SnapshotView] = field(default_factory=OrderedDict, repr=False, compare=False)

    def past(self, proposal: Proposal, binding: Mapping[str, Any], before: int) -> Case:
        """Return the case of a recorded proposal as of its own time.

        Args:
            proposal: the proposal.
            binding: by which it was judged.
            before: the position of the ruling; what came before it is the case's history.

        Raises:
            Refused, DamagedLog: where the base world cannot be read.
        """
        told = proposal.submitted
        return self.made(
            proposal.intent,
            ActorRef.read(told.actor),
            binding,
            proposal_id=told.proposal_id,
            base_world=told.base_world,
            view=self.view(told.base_world),
            schema_hash=told.schema_hash,
            branch=told.branch,
            submitted_at=told.at,
            earlier_attempts=told.attempt - 1,
            before=before,
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
        **told: Any,
    ) -> Case:
        """Return a case; ``told`` is what else ``world.ports.Case`` has."""
        spec = None if self.domain is None else self.domain.schema.actions.get(intent.body.type)
        return Case(
            proposal_id=proposal_id,
            intent=intent,
            actor=actor,
            binding=freeze(binding),
            action=None if spec is None else spec.spec,
            view=view,
            history=PastAt(cast(Lookup, self.archive), before, proposal_id),  # of a look-up it only counts
            manifest=self._declared(intent, view),
            **told,
        )

    def view(self, world_id: str) -> SnapshotView:
        """Return what rules see of a world.

        Raises:
            Refused: ``UNKNOWN_WORLD``.
        """
        known = self._views.get(world_id)
        return self._keep(world_id, self.archive.state(world_id)) if known is None else known

    def follow(self, sealed: WorldSealed) -> None:
        """Keep the state of a world that comes by in the order of the log, where its parent's is kept: no look-ups."""
        parent = self._views.get(sealed.parent or "")
        if sealed.data is None and parent is not None:
            self._keep(sealed.world_id, apply_patches(parent.data, map(Patch.from_wire, sealed.patches)))

    def _keep(self, world_id: str, data: FrozenDict) -> SnapshotView:
        view = self._views[world_id] = self.seen(data)
        if len(self._views) > MAX_VIEWS:
            self._views.popitem(last=False)
        return view

    def seen(self, data: FrozenDict) -> SnapshotView:
        """Return what rules see of a state, its computed values included."""
        return SnapshotView(data, FrozenDict() if self.domain is None else recompute(self.domain, data))

    def _declared(self, intent: IntentInstance, view: SnapshotView) -> FrozenDict | None:
        """Return what the action declares to touch, None where that cannot be told, as when it was judged."""
        action = None if self.domain is None else self.domain.schema.actions.get(intent.body.type)
        if action is None or not action.touches:
            return None
        try:
            scope = declared_scope(action.touches, action=intent.body.type, given=intent.body.input, view=view)
        except Refused:
            return None
        declared: FrozenDict = freeze({"scope": scope})
        return declared
