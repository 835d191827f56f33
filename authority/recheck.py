"""Recheck of rulings: judge again from the record and report every difference.

Equal cases and policies give equal rulings, so a difference means that a policy changed, that a rule is not a pure
function of its case, or that the record was changed. Source: CARD-replay; style 6.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any, Final

from msgspec.structs import replace

from authority.authority import UNREAD
from authority.policies.rule_guard import without_place
from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.model.decision import ENGINE, HUMAN_ANSWER, HumanAnswer, RuleOutcome, Ruling
from world.state.ports import Authority, Case

_NO_BINDING: Final = frozenset({"UNKNOWN_BINDING", "NOT_LOADED", "DUPLICATE_NAME"})
"""Codes of a binding whose kind cannot be read."""


def recheck_ruling(
    authority: Authority,
    case: Case,
    recorded: Ruling,
    *,
    asked: Ruling | None = None,
    answer: HumanAnswer | None = None,
) -> DivergenceError | None:
    """Repeat a recorded ruling and compare.

    Args:
        authority: the current authority.
        case: the case at the recorded time, its history included.
        recorded: the ruling in the log.
        asked: the waiting ruling before this one, if any. Without ``answer`` its time limit expired.
        answer: the person's answer, if any.

    Returns:
        None where both are equal, else the difference: ``POLICY_NOT_AT_HAND`` where the policy that judged is
        missing, ``BINDING_NOT_AT_HAND`` where the kind of the binding is, ``RULING_DIVERGED`` otherwise, with
        ``details["differences"]``, each ``{"at", "recorded", "now"}``.
    """
    try:
        now = _again(authority, case, asked, answer)
    except RefusedError as refused:
        if refused.code in _NO_BINDING:
            return _binding_missing(case, recorded, refused.message)
        difference = {"at": "verdict", "recorded": recorded.verdict, "now": f"refused: {refused.message}"}
        return _diverged(case, recorded, [difference])
    if now.policy_hash == recorded.policy_hash:
        now = _placed_as(now, recorded)
    if now == recorded:
        return None
    if recorded.policy_hash is not None and now.policy_hash is None:
        return DivergenceError(
            ErrorCode.POLICY_NOT_AT_HAND,
            f"The ruling on {case.proposal_id} cannot be rechecked, {recorded.authority} is missing: {now.reason}",
            proposal_id=case.proposal_id,
            authority=recorded.authority,
            policy_hash=recorded.policy_hash,
        )
    if now.authority == UNREAD and recorded.authority != UNREAD:
        return _binding_missing(case, recorded, now.reason)
    return _diverged(case, recorded, _differences(recorded, now))


def _placed_as(now: Ruling, recorded: Ruling) -> Ruling:
    """Return a ruling with the places of its rules as recorded: file and line are no part of a policy's identity."""
    pairs = zip(now.trace, recorded.trace, strict=False)
    aligned = [replace(new, source=old.source) if _is_moved(new, old) else new for new, old in pairs]
    aligned = [
        replace(new, reason=_reason_as(new.reason, old.reason)) if new.answer == "error" else new
        for new, old in zip(aligned, recorded.trace, strict=False)
    ]
    reason = _reason_as(now.reason, recorded.reason)
    return replace(now, reason=reason, trace=(*aligned, *now.trace[len(aligned) :]))


def _reason_as(now: str, recorded: str) -> str:
    """Return a reason as recorded where only the place of an impure operation differs."""
    return recorded if now != recorded and without_place(now) == without_place(recorded) else now


def _is_moved(new: RuleOutcome, old: RuleOutcome) -> bool:
    """Return whether the outcomes are of one rule of a policy at different places."""
    return new.rule == old.rule and new.source != old.source and new.rule not in (ENGINE, HUMAN_ANSWER)


def _binding_missing(case: Case, recorded: Ruling, why: str) -> DivergenceError:
    return DivergenceError(
        ErrorCode.BINDING_NOT_AT_HAND,
        f"The ruling on {case.proposal_id} cannot be rechecked: no binding {recorded.authority} is available: {why}",
        proposal_id=case.proposal_id,
        authority=recorded.authority,
    )


def _again(authority: Authority, case: Case, asked: Ruling | None, answer: HumanAnswer | None) -> Ruling:
    if asked is None:
        return authority.judge(case)
    return authority.expire(case, asked) if answer is None else authority.answer(case, asked, answer)


def _differences(recorded: Ruling, now: Ruling) -> list[dict[str, Any]]:
    """Return the differences: verdict and scope, the trace by rule, then the rest."""
    before, after = _parts(recorded), _parts(now)
    found = [{"at": at, "recorded": before[at], "now": after[at]} for at in before if before[at] != after[at]]
    rest = found[2:] if len(found) > 2 else []
    traces = [
        {"at": f"trace[{at}]", "recorded": _wire_of(old), "now": _wire_of(new)}
        for at, (old, new) in enumerate(zip_longest(recorded.trace, now.trace))
        if old != new
    ]
    return [*found[: len(found) - len(rest)], *traces, *rest]


def _parts(ruling: Ruling) -> dict[str, Any]:
    scope = ruling.approved_scope
    return {
        "verdict": ruling.verdict,
        "approvedScope": None if scope is None else scope.to_wire(),
        "policyHash": ruling.policy_hash,
        "authority": ruling.authority,
        "reason": ruling.reason,
        "ask": list(ruling.ask),
        "timeoutMs": ruling.timeout_ms,
        "onTimeout": ruling.on_timeout,
        "step": ruling.step,
    }


def _wire_of(outcome: RuleOutcome | None) -> dict[str, Any] | None:
    return None if outcome is None else outcome.to_wire()


def _diverged(case: Case, recorded: Ruling, differences: list[dict[str, Any]]) -> DivergenceError:
    shown = "; ".join(f"{one['at']} was {_short(one['recorded'])}, is {_short(one['now'])}" for one in differences)
    cause = ""
    if any(one["at"] == "policyHash" for one in differences):
        cause = " The policy changed since."
    return DivergenceError(
        ErrorCode.RULING_DIVERGED,
        f"The ruling of {recorded.authority} on {case.proposal_id} differs when it is repeated: {shown}.{cause}",
        proposal_id=case.proposal_id,
        authority=recorded.authority,
        differences=differences,
    )


def _short(value: Any) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= 120 else f"{text[:119]}…"
