"""Recheck of rulings of shadow policies (design section 6; CARD-replay)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from msgspec import structs

from authority import recheck_ruling
from authority.policies.policy import TIMED_OUT
from world.error_codes import ErrorCode
from world.errors import DivergenceError
from world.events.policy_events import ProposalShadowed
from world.model.decision import Ruling
from world.pipeline.shadowing import bound_to
from world.state.ports import Case


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
        yield DivergenceError(
            ErrorCode.POLICY_NOT_AT_HAND,
            f"The shadow ruling of {event.name!r} on {case.proposal_id} cannot be rechecked: the policy with the "
            f"hash {event.policy_hash[:12]} is not loaded, and the log does not hold the code of its rules.",
            proposal_id=case.proposal_id,
            authority=recorded.authority,
            policy_hash=event.policy_hash,
        )
        return
    steps["shadows"] += 1
    case = replace(case, binding=bound_to(case.binding, event.name))
    now: Ruling = authority.judge(case)
    if not recorded.trace and now.trace:  # too large to be recorded as a whole
        now = structs.replace(now, trace=(), reason=recorded.reason, approved_scope=recorded.approved_scope)
    difference = None if now == recorded else recheck_ruling(authority, case, recorded)
    if difference is not None:
        yield difference
