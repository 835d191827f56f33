"""Rules made of rules: all must agree, one must agree, or everything is approved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from authority.policies.combine import combine, reasons
from authority.policies.opinions import Approve, Escalate, Heard, Narrow, Opinion, Reject
from authority.policies.rules import Rule, ask, check_rule
from world.errors import RefusedError
from world.state.ports import Case


@dataclass(frozen=True, slots=True)
class AllOf:
    """Approves where every one of its rules approves; where one of them is silent, it is silent.

    A rejection or an escalation by any of its rules is its own. An escalation beside a narrowing, or beside
    one to other people, is more than one opinion can say: that is an error, and such rules belong into the
    policy itself.

    Args:
        name: the name of the whole.
        rules: at least one.

    Raises:
        RefusedError: ``INVALID_RULE`` for no rules, or what is none.
    """

    name: str
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        _check_parts(self)

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the strictest opinion; raises what its rules raise."""
        heard = [ask(part, case) for part in self.rules]
        if any(isinstance(one, Reject) for one in heard):
            return Reject(_words(heard, Reject))
        if any(isinstance(one, Escalate) for one in heard):
            return self._escalated(heard)
        if any(one is None for one in heard):
            return None
        return _agreed(heard)

    def _escalated(self, heard: Sequence[Heard]) -> Escalate:
        asked = [one for one in heard if isinstance(one, Escalate)]
        if len({(one.to, one.vote) for one in asked}) > 1 or any(isinstance(one, Narrow) for one in heard):
            raise RefusedError(
                "INVALID_OPINION",
                f"The rules of {self.name!r} escalate and narrow, or escalate to different people; "
                "make each of them a rule of the policy.",
            )
        return Escalate(asked[0].to, _words(heard, Escalate), vote=asked[0].vote)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Approves where one of its rules approves: the first approval or narrowing is its own.

    Where none approves it escalates or rejects as the first of its rules that does; an escalation is heard
    before a rejection.

    Args:
        name: the name of the whole.
        rules: at least one.

    Raises:
        RefusedError: ``INVALID_RULE`` for no rules, or what is none.
    """

    name: str
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        _check_parts(self)

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the mildest opinion; raises what its rules raise."""
        heard = [ask(part, case) for part in self.rules]
        for kinds in ((Approve, Narrow), (Escalate,), (Reject,)):
            for one in heard:
                if isinstance(one, kinds):
                    return one
        return None


@dataclass(frozen=True, slots=True)
class UnsafeApproveAll:
    """Approves everything: for experiments and tests, never for a world that matters.

    Args:
        name: the rule's name.
    """

    name: str = "unsafe_approve_all"

    def __call__(self, case: Case, /) -> Opinion | None:
        """Approve, whatever the case is."""
        return Approve("everything is approved, unsafely")


def _agreed(heard: Sequence[Heard]) -> Opinion:
    combined = combine(heard, None)
    if combined.verdict == "reject":
        return Reject("together the narrowings leave nothing to write")
    words = reasons(heard, range(len(heard)))
    return Approve(words) if combined.scope is None else Narrow(combined.scope, words)


def _words(heard: Sequence[Heard], kind: type[Opinion]) -> str:
    return reasons(heard, [at for at, one in enumerate(heard) if isinstance(one, kind)])


def _check_parts(whole: AllOf | AnyOf) -> None:
    if not whole.rules:
        raise RefusedError("INVALID_RULE", f"{whole.name!r} is made of no rules at all; name at least one.")
    object.__setattr__(whole, "rules", tuple(check_rule(part) for part in whole.rules))
