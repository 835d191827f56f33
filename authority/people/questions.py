"""Questions to people: their seats, votes and results.

A question is an ``escalate`` outcome in the trace of a ruling: of a rule, or of the binding, which then replaces all
questions before it. One approval answers it, or the number that its quorum needs; every actor who is asked has a seat
and may delegate it. The state is read from the trace alone, so the log defines all open questions. Its texts are
recorded in rulings and must not change. Sources: WP-bind, WP-decision; design section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from authority.bounded_text import listed
from world.model.decision import HUMAN_ANSWER, Quorum, RuleAnswer, RuleOutcome, Ruling
from world.model.new_names import ANY_HUMAN
from world.model.record import WireForm

TIME_LIMIT: Final = "time limit"
"""Rule name of the outcome of an expired time limit."""

PEOPLE_ASKED: Final = "people asked"
"""Rule name of a question of a binding, which replaces all earlier questions."""

NOT_CONFINED: Final = "not confined"
"""Rule name of the engine's question, or rejection, in place of an approval without confinement; as a question it
replaces all earlier ones (``authority.bindings.unconfined``)."""

OF_PEOPLE: Final = frozenset({HUMAN_ANSWER, TIME_LIMIT, PEOPLE_ASKED, NOT_CONFINED})
"""Rule names of outcomes that no rule produced."""

ANYBODY: Final = ANY_HUMAN
"""Among ids of actors: any human."""

NOBODY_ELSE: Final = "only the proposer is asked, and nobody answers for a proposal of their own"
"""Reason of a rejection where no one else can answer."""

APPROVALS: Final = frozenset({"approve", "narrow"})
"""Answers that approve."""


@dataclass(slots=True)
class Seat:
    """The right of one actor to answer a question.

    Args:
        chain: its holders in order of delegation; the last one is the current holder.
        vote: the answer of its holder, None before.
    """

    chain: tuple[str, ...]
    vote: RuleAnswer | None = None

    @property
    def holder(self) -> str:
        """The actor who answers for it, or ``*``."""
        return self.chain[-1]


@dataclass(slots=True)
class Question(WireForm):
    """One question and the state of its answers.

    Args:
        quorum: how many must approve; None is any one.
        seats: the seats of the actors who are asked; in a vote, the proposer has none.
        decided: the result; None while it is open.
    """

    quorum: Quorum | None
    seats: list[Seat]
    decided: Literal["approved", "lost"] | None = None
    WIRE: ClassVar = "rule needed members approved=approved_by voted waitsFor=pending"

    @classmethod
    def put(cls, to: Sequence[str], quorum: Quorum | None, proposer: str) -> Question:
        """Return a new question; the proposer has no vote."""
        return cls(quorum, [Seat((member,)) for member in to if quorum is None or member != proposer])

    @property
    def is_open(self) -> bool:
        """Whether it waits for an answer."""
        return self.decided is None

    @property
    def rule(self) -> str:
        """The rule of its quorum, or ``any``."""
        return "any" if self.quorum is None else self.quorum.rule

    @property
    def members(self) -> list[str]:
        """Actors who answer, in the order of the seats."""
        return [seat.holder for seat in self.seats]

    @property
    def needed(self) -> int:
        """How many must approve."""
        return 1 if self.quorum is None else self.quorum.needed(len(self.seats))

    @property
    def approved_by(self) -> tuple[str, ...]:
        """Actors who have approved."""
        return tuple(seat.holder for seat in self.seats if seat.vote in APPROVALS)

    @property
    def voted(self) -> tuple[str, ...]:
        """Actors who have voted, in the order of the seats."""
        return tuple(seat.holder for seat in self.seats if seat.vote is not None)

    @property
    def pending(self) -> tuple[str, ...]:
        """Actors who can still answer: ids, or ``*``."""
        return tuple(seat.holder for seat in self.seats if seat.vote is None) if self.is_open else ()

    def is_asked(self, kind: str, actor_id: str) -> bool:
        """Return whether an actor can answer it now."""
        pending = self.pending
        return actor_id in pending or (kind == "human" and ANYBODY in pending)

    def has_voted(self, actor_id: str) -> bool:
        """Return whether an actor has voted on it."""
        return actor_id in self.voted

    def take(self, outcome: RuleOutcome) -> None:
        """Count the answer of a person; answers of actors who are not asked are ignored."""
        kind, _, actor_id = outcome.source.partition(":")
        if not self.is_asked(kind, actor_id):
            return
        if outcome.answer == "delegate":
            for seat in self.seats:
                if seat.holder == actor_id and seat.vote is None:
                    seat.chain = (*seat.chain, *outcome.to)
        elif self.quorum is not None:
            self._count(actor_id, outcome.answer)
        elif outcome.answer in APPROVALS:
            self.decided = "approved"
        elif outcome.answer == "reject":
            self.decided = "lost"

    def _count(self, actor_id: str, answer: RuleAnswer) -> None:
        """Count a vote; decide as soon as the missing votes cannot change the result."""
        for seat in self.seats:
            if seat.holder == actor_id:
                seat.vote = answer
        approvals = len(self.approved_by)
        if approvals >= self.needed:
            self.decided = "approved"
        elif approvals + len(self.pending) < self.needed:
            self.decided = "lost"

    @property
    def count(self) -> str:
        """The counts of approvals as a text."""
        return f"{len(self.approved_by)} of {len(self.seats)} approved, {self.needed} needed"

    @property
    def words(self) -> str:
        """The state as a text for people."""
        if self.quorum is None:
            return f"{listed(self.pending)} decides"
        missing = self.needed - len(self.approved_by)
        voted = f"{', '.join(self.voted)} voted" if self.voted else "nobody has voted"
        return f"{len(self.approved_by)} of {len(self.seats)} approve, {missing} more needed; {voted}"


def questions_of(asked: Ruling, proposer: str) -> list[Question]:
    """Return the questions of a waiting ruling with their answers counted.

    Args:
        asked: the ruling.
        proposer: the id of the actor whose proposal it is about.
    """
    at = asked_at(asked.trace)
    if at is not None:
        put = [asked.trace[at]]
    else:
        put = [outcome for outcome in asked.trace if outcome.answer == "escalate"]
    questions = [Question.put(outcome.to, outcome.quorum, proposer) for outcome in put]
    if not questions:  # the first question of a binding that asks any one of its people is not in the trace
        questions = [Question.put(asked.ask, None, proposer)]
    for outcome in asked.trace[0 if at is None else at :]:
        if outcome.rule == HUMAN_ANSWER:
            for question in questions:
                question.take(outcome)
    return questions


def asked_at(trace: Sequence[RuleOutcome]) -> int | None:
    """Return the index of the last question of the binding or of the engine, None where only rules asked."""
    return next((at for at in range(len(trace) - 1, -1, -1) if _is_put(trace[at])), None)


def _is_put(outcome: RuleOutcome) -> bool:
    return outcome.rule == PEOPLE_ASKED or (outcome.rule == NOT_CONFINED and outcome.answer == "escalate")


def who_decides(questions: Sequence[Question]) -> str:
    """Return the actors who decide open questions, as a text."""
    anyone = dict.fromkeys(listed(question.pending) for question in questions if question.quorum is None)
    voting = [
        f"{question.needed} of {len(question.seats)} decide: {', '.join(seat.holder for seat in question.seats)}"
        for question in questions
        if question.quorum is not None
    ]
    return "; ".join([*([f"{' and '.join(anyone)} decides"] if anyone else []), *voting])


def unanswerable(to: Sequence[str], quorum: Quorum | None, proposer: str) -> str | None:
    """Return the reason why a question can never be approved, None where it can."""
    question = Question.put(to, quorum, proposer)
    members = len(question.seats)
    if quorum is None:
        return None if any(actor_id != proposer for actor_id in to) else NOBODY_ELSE
    if not members:
        return NOBODY_ELSE
    if members < question.needed:
        return f"{question.needed} must approve, and beside the proposer only {', '.join(question.pending)} can vote"
    return None
