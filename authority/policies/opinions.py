"""What a rule can say about a case: approve, narrow, escalate, reject; None is no opinion.

An opinion is complete and checked when it is made, so a wrong one is an error of the rule that made it, and
errors refuse. Source: design section 6.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Final, Literal, final

from pydantic import TypeAdapter, ValidationError

from authority.bounded_text import bounded
from world.errors import RefusedError
from world.model.decision import Quorum, RuleAnswer
from world.model.intent import IntentScope
from world.model.scope_patterns import check_number
from world.model.value import Identifier
from world.sizes import MAX_SCOPE_PATTERNS

MAX_ASKED: Final = 100
"""Ids that one escalation or binding may name."""

Vote = Literal["unanimous", "majority"] | int
"""How many of those who are asked must approve: all, more than half, or so many."""

_IDENTIFIER: Final = TypeAdapter(Identifier)


@final
@dataclass(frozen=True, slots=True)
class Approve:
    """The intent may run, within the scope it proposed.

    Args:
        reason: for people.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is no text.
    """

    reason: str = ""
    answer: ClassVar[RuleAnswer] = "approve"

    def __post_init__(self) -> None:
        _check_reason(self)


@final
@dataclass(frozen=True, slots=True)
class Reject:
    """The intent must not run; nothing outweighs this.

    Args:
        reason: for people.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is no text.
    """

    reason: str = ""
    answer: ClassVar[RuleAnswer] = "reject"

    def __post_init__(self) -> None:
        _check_reason(self)


@final
@dataclass(frozen=True, slots=True, init=False)
class Narrow:
    """The intent may run, but write only within this scope and within what it proposed.

    Args:
        scope: an ``IntentScope``, one pattern, or several.
        reason: for people.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is no text, or a scope without patterns: who wants to
            allow nothing rejects. ``INVALID_VALUE`` for patterns that are no texts. ``SCOPE_TOO_LARGE`` for more than
            ``MAX_SCOPE_PATTERNS``; no more than one beyond the limit is taken from an iterable.
    """

    scope: IntentScope
    reason: str
    answer: ClassVar[RuleAnswer] = "narrow"

    def __init__(self, scope: IntentScope | str | Iterable[str], reason: str = "") -> None:
        """Take the scope in any of its forms."""
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
                "INVALID_OPINION",
                "Narrow needs at least one pattern, such as data.profile.*; to allow nothing, reject.",
            )
        object.__setattr__(self, "scope", scope)
        object.__setattr__(self, "reason", reason)
        _check_reason(self)


@final
@dataclass(frozen=True, slots=True, init=False)
class Escalate:
    """People decide. Every escalation of a policy needs its own approval by one of those it names.

    Args:
        to: ids of the actors who may answer, ``*`` for any human; none asks whom the binding names.
        reason: for people.
        vote: they vote, as a tribunal does: how many of them must approve, ``majority`` or ``unanimous``; None is
            any one of them.

    Raises:
        RefusedError: ``INVALID_OPINION`` for a reason that is no text, ids that are none, more than ``MAX_ASKED``, a
            vote that is none, of nobody or of ``*``, or that needs more than are named.
    """

    to: tuple[str, ...]
    reason: str
    vote: Vote | None
    answer: ClassVar[RuleAnswer] = "escalate"

    def __init__(
        self,
        to: str | Iterable[str] = (),
        reason: str = "",
        *,
        vote: Vote | None = None,
    ) -> None:
        """Take one id or several."""
        given = _several(to, "Escalate(to) needs ids of actors.", MAX_SCOPE_PATTERNS)
        if len(given) > MAX_SCOPE_PATTERNS:
            raise RefusedError(
                "INVALID_OPINION", f"An escalation lists {len(given)} ids or more; the limit is {MAX_ASKED}."
            )
        ids = tuple(dict.fromkeys(given))
        if len(ids) > MAX_ASKED:
            raise RefusedError("INVALID_OPINION", f"An escalation names {len(ids)} actors; the limit is {MAX_ASKED}.")
        for actor_id in ids:
            try:
                _IDENTIFIER.validate_python(actor_id, strict=True)
            except ValidationError:
                raise RefusedError("INVALID_OPINION", f"{bounded(repr(actor_id))} is no actor's id.") from None
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
"""What a rule may return, besides None."""


@final
@dataclass(frozen=True, slots=True)
class RuleFault:
    """What the engine notes for a rule that raised or returned nonsense; it refuses.

    Args:
        reason: what went wrong.
    """

    reason: str
    answer: ClassVar[RuleAnswer] = "error"


Heard = Opinion | RuleFault | None
"""What came of asking a rule."""

OPINIONS: Final[frozenset[type]] = frozenset({Approve, Reject, Narrow, Escalate})
"""The types a rule may return, exactly."""


def _check_vote(vote: object, ids: tuple[str, ...]) -> None:
    if not ids or "*" in ids:
        raise RefusedError("INVALID_OPINION", "Only members that are named can vote: name them in Escalate(to).")
    if isinstance(vote, str) and vote in ("unanimous", "majority"):
        return
    if type(vote) is not int or not 1 <= vote <= len(ids):
        raise RefusedError(
            "INVALID_OPINION",
            f"A vote is unanimous, majority, or how many must approve, 1 to {len(ids)} here, "
            f"not {bounded(repr(vote)):.80}.",
        )


def _several(given: str | Iterable[str], needed: str, most: int) -> list[str]:
    """Return what was given as a list, with at most one member more than ``most``: that is one too many."""
    if isinstance(given, str):
        return [given]
    try:
        return list(islice(given, most + 1))
    except TypeError:
        raise RefusedError("INVALID_OPINION", f"{needed} Given was {type(given).__name__}.") from None


def _check_reason(opinion: Opinion) -> None:
    reason = opinion.reason
    if not isinstance(reason, str):
        raise RefusedError("INVALID_OPINION", f"A reason is a text, not {type(reason).__name__}.")
    sound = bounded(reason)
    if sound is not reason:
        object.__setattr__(opinion, "reason", sound)
