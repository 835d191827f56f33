"""Composed rules: all must agree, one must agree, or everything is approved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from authority.policies.combine import combine, reasons
from authority.policies.opinions import Approve, Escalate, Narrow, Opinion, Reject, RuleResult
from authority.policies.rules import Rule, ask, check_rule
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.ports import Case


@dataclass(frozen=True, slots=True)
class AllOf:
    """Approves where all its rules approve; has no opinion where one has none.

    A rejection or an escalation of one of its rules is the result. An escalation together with a narrowing, or with an
    escalation to other people, cannot be one opinion and is an error; add such rules to the policy separately.

    Args:
        name: the name of the composed rule.
        rules: at least one.

    Raises:
        RefusedError: ``INVALID_RULE`` for no rules, or an object that is not a rule.
    """

    name: str
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        _check_parts(self)

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the strictest opinion; exceptions of its rules pass through."""
        heard = [ask(part, case) for part in self.rules]
        if any(isinstance(one, Reject) for one in heard):
            return Reject(_words(heard, Reject))
        if any(isinstance(one, Escalate) for one in heard):
            return self._escalated(heard)
        if any(one is None for one in heard):
            return None
        return _agreed(heard)

    def _escalated(self, heard: Sequence[RuleResult]) -> Escalate:
        asked = [one for one in heard if isinstance(one, Escalate)]
        if len({(one.to, one.vote) for one in asked}) > 1 or any(isinstance(one, Narrow) for one in heard):
            raise RefusedError(
                ErrorCode.INVALID_OPINION,
                f"The rules of {self.name!r} escalate and narrow, or escalate to different people; "
                "make each of them a rule of the policy.",
            )
        return Escalate(asked[0].to, _words(heard, Escalate), vote=asked[0].vote)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Approves where one of its rules approves, with the first approval or narrowing.

    Without an approval it returns the first escalation, else the first rejection.

    Args:
        name: the name of the composed rule.
        rules: at least one.

    Raises:
        RefusedError: ``INVALID_RULE`` for no rules, or an object that is not a rule.
    """

    name: str
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        _check_parts(self)

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the least strict opinion; exceptions of its rules pass through."""
        heard = [ask(part, case) for part in self.rules]
        for kinds in ((Approve, Narrow), (Escalate,), (Reject,)):
            for one in heard:
                if isinstance(one, kinds):
                    return one
        return None


@dataclass(frozen=True, slots=True)
class UnsafeApproveAll:
    """Approves everything; only for experiments and tests.

    Args:
        name: the rule's name.
    """

    name: str = "unsafe_approve_all"

    def __call__(self, case: Case, /) -> Opinion | None:
        """Approve every case."""
        return Approve("everything is approved, unsafely")


def _agreed(heard: Sequence[RuleResult]) -> Opinion:
    combined = combine(heard, None)
    if combined.verdict == "reject":
        return Reject("together the narrowings leave nothing to write")
    words = reasons(heard, range(len(heard)))
    return Approve(words) if combined.scope is None else Narrow(combined.scope, words)


def _words(heard: Sequence[RuleResult], kind: type[Opinion]) -> str:
    return reasons(heard, [at for at, one in enumerate(heard) if isinstance(one, kind)])


def _check_parts(whole: AllOf | AnyOf) -> None:
    if not whole.rules:
        raise RefusedError(ErrorCode.INVALID_RULE, f"{whole.name!r} has no rules; give at least one.")
    object.__setattr__(whole, "rules", tuple(check_rule(part) for part in whole.rules))
