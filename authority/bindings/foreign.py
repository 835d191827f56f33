"""Rulings of kinds of bindings that packages offer: called within the time limit, and checked before they count.

The protocol records a ruling and gives it again in a recheck, so it has to be what its wire form says. No kind can
approve more than was proposed.
"""

from __future__ import annotations

import msgspec

from authority.bindings.binding import Binding, JudgingContext
from authority.bounded_text import MAX_WORDS, error_text
from authority.scope import outside
from world.code.time_limit import TimeLimitError
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.decision import Ruling
from world.model.immutable_json import freeze
from world.state.ports import Case

__all__ = ["foreign_ruling"]


def foreign_ruling(binding: Binding, case: Case, context: JudgingContext) -> Ruling:
    """Return the ruling of a binding whose class comes from a package.

    Args:
        binding: the actor's binding.
        case: the case.
        context: policies and time limit; the whole call has the time of one rule.

    Raises:
        RefusedError: ``INVALID_RULING`` where its code raises, takes too long, or returns what is no ruling on the
            case; what its code refuses.
    """
    try:
        ruling = context.time_limit.run(lambda: binding.judge(case, context))
    except (KeyboardInterrupt, RefusedError):
        raise
    except TimeLimitError as late:
        raise _invalid(binding, str(late)) from None
    except BaseException as error:  # code of a package may raise anything, SystemExit too
        raise _invalid(binding, error_text(error)) from error
    why = _fault(ruling, binding, case)
    if why is not None:
        raise _invalid(binding, why)
    return ruling


def _fault(ruling: object, binding: Binding, case: Case) -> str | None:
    """Return why what a binding returned is no ruling on the case, None where it is one."""
    if type(ruling) is not Ruling:
        return f"it returned {type(ruling).__name__}, and not a Ruling"
    if ruling.verdict not in ("approve", "reject", "wait"):
        return f"the verdict is approve, reject or wait, not {ruling.verdict!r:.80}"
    if ruling.authority != binding.label:
        return f"its ruling names the authority {ruling.authority!r:.80}, not {binding.label!r}"
    if len(ruling.reason) > MAX_WORDS:
        return f"its reason has {len(ruling.reason)} characters; the limit is {MAX_WORDS}"
    if ruling.verdict == "wait" and (not ruling.ask or binding.asking is None):
        return "its ruling waits for people, and it asks none"
    if ruling.step or not _is_recordable(ruling):
        return "its ruling has parts that cannot be recorded with this verdict"
    return _wider(ruling, case)


def _is_recordable(ruling: Ruling) -> bool:
    """Return whether the record of a ruling is read again as the same ruling."""
    try:
        return Ruling.from_wire(freeze(ruling.to_wire())) == ruling
    except msgspec.ValidationError:
        return False


def _wider(ruling: Ruling, case: Case) -> str | None:
    """Return how the approved scope reaches out of the proposed one, None where it does not."""
    proposed = case.intent.body.scope_proposal
    if ruling.verdict != "approve" or proposed is None or proposed.allowed_paths is None:
        return None
    approved = None if ruling.approved_scope is None else ruling.approved_scope.allowed_paths
    if approved is None:
        return "it approves without a scope what was proposed with one"
    beyond = outside(approved, proposed.allowed_paths, case.scope_rules)
    return f"it approves more than was proposed: {beyond[0]!r:.200}" if beyond else None


def _invalid(binding: Binding, why: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_RULING, f"The binding {binding.label!r} gave no ruling: {why}.")
