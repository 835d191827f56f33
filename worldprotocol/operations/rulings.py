"""Explained rulings as answers show them: every rule with its part in the outcome, and what would change it."""

from __future__ import annotations

from typing import Any, Literal

from worldprotocol.operations.declaring import AnswerForm
from worldprotocol.operations.records import ActorForm, OutcomeForm, ScopeForm

__all__ = ["ExplainedRule", "ExplainedRuling", "RulingPolicy"]

Part = Literal["decided", "overruled", "narrowed", "agreed", "asked", "failed", "silent"]


class RulingPolicy(AnswerForm, frozen=True, kw_only=True):
    """The policy that judged, and the position of its adoption; null where it was not adopted by then."""

    name: str
    hash: str
    position: int | None


class ExplainedRule(OutcomeForm, frozen=True, kw_only=True):
    """A rule with its part in the outcome; `reads` has the values that its condition read.

    ``because`` says why it does not apply, and ``answeredFrom`` where a rule in code answered.
    """

    role: Part
    description: str | None = None
    when: str | None = None
    because: str | None = None
    reads: dict[str, Any] | None = None
    answered_from: dict[str, Any] | None = None


class ExplainedRuling(AnswerForm, frozen=True, kw_only=True):
    """A ruling on an intent: what every rule, people and the engine said, and what would have to differ.

    ``changes`` is null for an approval; ``byDefault`` says that no rule applied.
    """

    actor: ActorForm
    action: str
    input: Any
    branch: str
    base_world: str
    submitted_at: int
    authority: str | None
    reason: str | None
    approved_scope: ScopeForm | None
    policy: RulingPolicy | None
    note: str | None
    rules: list[ExplainedRule]
    people: list[OutcomeForm]
    engine: OutcomeForm | None
    decided_by: list[str]
    by_default: bool
    changes: dict[str, Any] | None
