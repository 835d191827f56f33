"""Parts of the recheck of rulings: questions to people, and what cannot be ruled again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from authority.policies.policy import TIMED_OUT
from world.errors import DivergenceError
from world.model.decision import ENGINE, HumanAnswer, Ruling
from world.pipeline.judge import in_force
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Case

__all__ = []


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to the authority: the case is made of it when its ruling is there to be compared.

    Args:
        binding: by which it was judged.
        before: the position before which its history ends.
        asked: the ruling that waited for people; None where nobody had been asked.
        answer: what a person said; None where nobody did in time.
    """

    binding: Any
    before: int
    asked: Ruling | None = None
    answer: HumanAnswer | None = None


def _is_repeatable(recorded: Ruling) -> bool:
    """Tell whether no rule was broken off at its time limit, and no case was one that could not be made any more."""
    return not any(
        (outcome.answer == "error" and outcome.reason.startswith(TIMED_OUT))
        or (outcome.rule == ENGINE and outcome.source == "case")
        for outcome in recorded.trace
    )


def _not_at_hand(case: Case, recorded: Ruling) -> DivergenceError:
    return DivergenceError(
        "POLICY_NOT_AT_HAND",
        f"The ruling of {recorded.authority} on {case.proposal_id} cannot be rechecked: the policy with the hash "
        f"{(recorded.policy_hash or '')[:12]} is not at hand, and the log does not hold the code of its rules.",
        proposal_id=case.proposal_id,
        authority=recorded.authority,
        policy_hash=recorded.policy_hash,
    )


@dataclass(frozen=True, slots=True)
class _Refusing:
    """An authority that refuses, as the protocol does, what a policy says that is not the one in force.

    Args:
        authority: has the policy; None where nothing has: then what it said is as recorded, and only whether that was
            refused is told.
        work: knows the policy in force.
        recorded: the ruling in the log.
    """

    authority: Any
    work: UnitOfWork
    recorded: Ruling

    def judge(self, case: Case) -> Ruling:
        said = self.recorded if self.authority is None else self.authority.judge(case)
        return in_force(self.work, said, case.binding)
