"""Opinions of rules: approve, narrow, escalate, reject; None is no opinion.

An opinion is checked when it is made, so an invalid one is an error of its rule, and errors reject. The error texts are
recorded in rulings and must not change. Source: design section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final, Literal, final

from pydantic import TypeAdapter, ValidationError

from authority.bounded_text import bounded
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.decision import Quorum, RuleAnswer
from world.model.intent import IntentScope
from world.model.member_types import Identifier
from world.model.scope_patterns import check_number
from world.model.short_repr import fields_repr
from world.sizes import MAX_SCOPE_PATTERNS

MAX_ASKED: Final = 100
"""Maximum number of ids in one escalation or binding."""

Vote = Literal["unanimous", "majority"] | int
"""Required approvals: all, more than half, or a number."""

_IDENTIFIER: Final = TypeAdapter(Identifier)


@final
@dataclass(frozen=True, slots=True)
class Approve:
    """The intent may run, within the scope it proposed.

    Args:
        reason: for people.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is not a string.
    """

    reason: str = ""
    answer: ClassVar[RuleAnswer] = "approve"

    __repr__ = fields_repr

    def __post_init__(self) -> None:
        _check_reason(self)


@final
@dataclass(frozen=True, slots=True)
class Reject:
    """The intent must not run; no other opinion overrides this.

    Args:
        reason: for people.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is not a string.
    """

    reason: str = ""
    answer: ClassVar[RuleAnswer] = "reject"

    __repr__ = fields_repr

    def __post_init__(self) -> None:
        _check_reason(self)


@final
@dataclass(frozen=True, slots=True, init=False)
class Narrow:
    """The intent may run, but write only within this scope and its proposed one.

    Args:
        scope: an ``IntentScope``, one pattern, or several.
        reason: for people.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is not a string, or a scope without patterns: use
            ``Reject`` instead. ``INVALID_VALUE`` for patterns that are not strings. ``SCOPE_TOO_LARGE`` for more than
            ``MAX_SCOPE_PATTERNS``; an iterable is read up to one item beyond the limit.
    """

    scope: IntentScope
    reason: str
    answer: ClassVar[RuleAnswer] = "narrow"

    __repr__ = fields_repr

    def __init__(self, scope: IntentScope | str | Iterable[str], reason: str = "") -> None:
        """Accept the scope in any of its forms."""
        if not isinstance(scope, IntentScope):
            if isinstance(scope, list | tuple):
                check_number(len(scope), "Narrow")
            needed = "Narrow(scope) needs a pattern, several, or an IntentScope."
            patterns = _several(scope, needed, MAX_SCOPE_PATTERNS)
            check_number(len(patterns), "Narrow")
            scope = IntentScope.read({"allowedPaths": patterns})
        check_number(len(scope.allowed_paths or ()), "Narrow")
        if not scope.allowed_paths:
            raise RefusedError(
                ErrorCode.INVALID_OPINION,
                "Narrow needs at least one pattern, such as data.profile.*; to allow nothing, reject.",
            )
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "reason", reason)
        _check_reason(self)


@final
@dataclass(frozen=True, slots=True, init=False)
class Escalate:
    """People decide; every escalation of a policy needs its own approval.

    Args:
        to: ids of the actors who may answer, ``*`` for any human; empty for the actors of the binding.
        reason: for people.
        vote: required approvals of a vote: a number, ``majority`` or ``unanimous``; None is any one actor.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is not a string, invalid ids, more than ``MAX_ASKED``, and
            an invalid vote: without actors, of ``*``, or with more approvals than actors.
    """

    to: tuple[str, ...]
    reason: str
    vote: Vote | None
    answer: ClassVar[RuleAnswer] = "escalate"

    __repr__ = fields_repr

    def __init__(
        self,
        to: str | Iterable[str] = (),
        reason: str = "",
        *,
        vote: Vote | None = None,
    ) -> None:
        """Accept one id or several."""
        given = _several(to, "Escalate(to) needs ids of actors.", MAX_SCOPE_PATTERNS)
        if len(given) > MAX_SCOPE_PATTERNS:
            raise RefusedError(
                ErrorCode.INVALID_OPINION, f"An escalation lists {len(given)} ids or more; the limit is {MAX_ASKED}."
            )
        ids = tuple(dict.fromkeys(given))
        if len(ids) > MAX_ASKED:
            raise RefusedError(
                ErrorCode.INVALID_OPINION, f"An escalation names {len(ids)} actors; the limit is {MAX_ASKED}."
            )
        for actor_id in ids:
            try:
                _IDENTIFIER.validate_python(actor_id, strict=True)
            except ValidationError:
                raise RefusedError(ErrorCode.INVALID_OPINION, f"{bounded(repr(actor_id))} is no actor's id.") from None
        object.__setattr__(self, "to", ids)
        object.__setattr__(self, "reason", reason)
        object.__setattr__(self, "vote", vote)
        if vote is not None:
            _check_vote(vote, ids)
        _check_reason(self)

    @property
    def quorum(self) -> Quorum | None:
        """How many must approve; None is any one."""
        if self.vote is None:
            return None
        return Quorum("threshold", self.vote) if isinstance(self.vote, int) else Quorum(self.vote)


Opinion = Approve | Reject | Narrow | Escalate
"""Types that a rule may return, besides None."""


@final
@dataclass(frozen=True, slots=True)
class RuleFault:
    """Result of a rule that raised or returned no opinion; it rejects.

    Args:
        reason: the cause.
    """

    reason: str
    answer: ClassVar[RuleAnswer] = "error"


RuleResult = Opinion | RuleFault | None
"""Result of evaluating a rule."""

OPINIONS: Final[frozenset[type]] = frozenset({Approve, Reject, Narrow, Escalate})
"""The types a rule may return, exactly."""


def _check_vote(vote: object, ids: tuple[str, ...]) -> None:
    if not ids or "*" in ids:
        raise RefusedError(
            ErrorCode.INVALID_OPINION, "Only members that are named can vote: name them in Escalate(to)."
        )
    if isinstance(vote, str) and vote in ("unanimous", "majority"):
        return
    if type(vote) is not int or not 1 <= vote <= len(ids):
        raise RefusedError(
            ErrorCode.INVALID_OPINION,
            f"A vote is unanimous, majority, or how many must approve, 1 to {len(ids)} here, "
            f"not {bounded(repr(vote)):.80}.",
        )


def _several(given: str | Iterable[str], needed: str, most: int) -> list[str]:
    """Return the given items as a list of at most ``most + 1``."""
    if isinstance(given, str):
        return [given]
    try:
        return list(islice(given, most + 1))
    except TypeError:
        raise RefusedError(ErrorCode.INVALID_OPINION, f"{needed} Given was {type(given).__name__}.") from None


def _check_reason(opinion: Opinion) -> None:
    reason = opinion.reason
    if not isinstance(reason, str):
        raise RefusedError(ErrorCode.INVALID_OPINION, f"A reason is a text, not {type(reason).__name__}.")
    sound = bounded(reason)
    if sound is not reason:
        object.__setattr__(opinion, "reason", sound)
