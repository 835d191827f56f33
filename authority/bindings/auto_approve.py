"""Bindings of the kind ``auto_approve``: every proposal is approved as proposed; an Authority too (INT-4.1)."""

from __future__ import annotations

from typing import Literal

from authority.bindings.binding import Binding, JudgingContext
from world.model.decision import Ruling
from world.state.ports import Case

__all__ = ["AutoApproveBinding"]


class AutoApproveBinding(Binding):
    """Every proposal is approved as proposed."""

    kind: Literal["auto_approve"]

    def judge(self, case: Case, context: JudgingContext) -> Ruling:
        """Approve with the proposed scope."""
        reason = "the actor's binding approves every proposal"
        return Ruling("approve", self.label, reason, case.intent.body.scope_proposal)
