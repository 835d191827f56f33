"""Parts of the recheck of rulings: questions, and rulings that cannot be repeated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from authority.policies.policy import TIMED_OUT
from world.error_codes import ErrorCode
from world.errors import DivergenceError
from world.model.decision import ENGINE, HumanAnswer, Ruling
from world.pipeline.adopted_code.holding import in_force
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Case

__all__ = []


@dataclass(frozen=True, slots=True)
class _Question:
    """Input of a ruling, from which its case is created when the ruling is compared.

    Args:
        binding: binding of the proposer.
        before: position before which the case's history ends.
        asked: the ruling that waits for human answers; None if there was none.
        answer: the human answer; None for a time-out.
    """

    binding: Any
    before: int
    asked: Ruling | None = None
    answer: HumanAnswer | None = None


def _is_repeatable(recorded: Ruling) -> bool:
    """Return whether a ruling has no time-out and its case can be created again."""
    return not any(
        (outcome.answer == "error" and outcome.reason.startswith(TIMED_OUT))
        or (outcome.rule == ENGINE and outcome.source == "case")
        for outcome in recorded.trace
    )


def _not_at_hand(case: Case, recorded: Ruling) -> DivergenceError:
    return DivergenceError(
        ErrorCode.POLICY_NOT_AT_HAND,
        f"The ruling of {recorded.authority} on {case.proposal_id} cannot be rechecked: the policy with the hash "
        f"{(recorded.policy_hash or '')[:12]} is not loaded, and the log does not hold the code of its rules.",
        proposal_id=case.proposal_id,
        authority=recorded.authority,
        policy_hash=recorded.policy_hash,
    )


@dataclass(frozen=True, slots=True)
class _Refusing:
    """Authority that refuses rulings of policies not in force, as the protocol does.

    Args:
        authority: authority with the policy; None if it is not available: then the recorded ruling is used, and only
            its refusal is checked.
        work: unit of work with the policy in force.
        recorded: the ruling in the log.
    """

    authority: Any
    work: UnitOfWork
    recorded: Ruling

    def judge(self, case: Case) -> Ruling:
        ruling = self.recorded if self.authority is None else self.authority.judge(case)
        return in_force(self.work, ruling, case.binding)
