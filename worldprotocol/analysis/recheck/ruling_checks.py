"""Parts of the recheck of rulings: questions, rulings that cannot be repeated, and those of shadow policies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from msgspec import structs

from authority import recheck_ruling
from authority.policies.policy import TIMED_OUT
from world.error_codes import ErrorCode
from world.errors import DivergenceError
from world.events.policy_events import ProposalShadowed
from world.model.decision import ENGINE, HumanAnswer, Ruling
from world.pipeline.adopted_code.holding import in_force
from world.pipeline.shadowing import bound_to
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Case

__all__ = ["Refusing", "RulingInput", "is_repeatable", "not_at_hand", "recheck_shadow"]


@dataclass(frozen=True, slots=True)
class RulingInput:
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


def is_repeatable(recorded: Ruling) -> bool:
    """Return whether a ruling has no time-out and its case can be created again."""
    return not any(
        (outcome.answer == "error" and outcome.reason.startswith(TIMED_OUT))
        or (outcome.rule == ENGINE and outcome.source == "case")
        for outcome in recorded.trace
    )


def not_at_hand(what: str, case: Case, authority: str, policy_hash: str | None) -> DivergenceError:
    """Return the error for a ruling by a policy that is neither loaded nor can be made of the log.

    Args:
        what: the ruling, such as ``ruling of policy:house``.
        case: the judged case.
        authority: name of the authority in the record.
        policy_hash: hash of the policy in the record.
    """
    return DivergenceError(
        ErrorCode.POLICY_NOT_AT_HAND,
        f"The {what} on {case.proposal_id} cannot be rechecked: the policy with the hash {(policy_hash or '')[:12]} is "
        "not loaded, and the log does not hold the code of its rules.",
        proposal_id=case.proposal_id,
        authority=authority,
        policy_hash=policy_hash,
    )


@dataclass(frozen=True, slots=True)
class Refusing:
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
        """Return the ruling, or its refusal."""
        ruling = self.recorded if self.authority is None else self.authority.judge(case)
        return in_force(self.work, ruling, case.binding)


def recheck_shadow(
    authority: Any, case: Case, event: ProposalShadowed, steps: Counter[str], *, turned_on: str | None
) -> Iterator[DivergenceError]:
    """Yield the divergence of a shadow ruling.

    Args:
        authority: authority with the recorded policy; None if it is not available.
        case: the judged case.
        event: the recorded ruling.
        steps: counts repeated rulings as ``shadows``; counts as ``notRepeatable`` rulings that failed, timed out, or
            were given by a policy that changed after shadowing began, so that the log does not hold its rules.
        turned_on: hash of the policy when shadowing began; the log holds its description.
    """
    recorded = event.ruling
    if event.policy_hash is None or any(one.reason.startswith(TIMED_OUT) for one in recorded.trace):
        steps["notRepeatable"] += 1
        return
    if authority is None and event.policy_hash != turned_on:
        steps["notRepeatable"] += 1
        return
    if authority is None:
        yield not_at_hand(f"shadow ruling of {event.name!r}", case, recorded.authority, event.policy_hash)
        return
    steps["shadows"] += 1
    case = replace(case, binding=bound_to(case.binding, event.name))
    now: Ruling = authority.judge(case)
    if not recorded.trace and now.trace:  # too large to be recorded as a whole
        now = structs.replace(now, trace=(), reason=recorded.reason, approved_scope=recorded.approved_scope)
    difference = None if now == recorded else recheck_ruling(authority, case, recorded)
    if difference is not None:
        yield difference
