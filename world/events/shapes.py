"""Required members and types of the protocol values that events embed in wire form.

An event is decoded once and then read by folds, the index, views and commands. So missing and misnamed members are
detected when it is decoded, even where all hashes are consistent. Only members that other modules read are described;
verification checks the meaning of the values (``world.audit.event_checks``). Source: design sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

import msgspec

_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]


class _Closed(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """Base class of a value with exactly the declared members."""


class _Open(msgspec.Struct, rename="camel", gc=False):
    """Base class of a value with at least the declared members."""


class _Actor(_Closed):
    actor_id: _Id
    kind: Literal["human", "agent", "system"]
    name: str | None = None
    meta: dict[str, Any] | None = None


class _Scope(_Closed):
    allowed_paths: list[_Id] | None = None
    note: str | None = None


class _Body(_Closed):
    type: _Id
    input: Any = None
    scope_proposal: _Scope | None = None


class _SourceRef(_Open):
    kind: str
    event_id: _Id


class _Origin(_Closed):
    projection_id: _Id
    source: _SourceRef
    actor: _Actor
    note: str | None = None


class _Meta(_Closed):
    origin: _Origin


class _Intent(_Closed):
    body: _Body
    intent_id: _Id
    intent_key: _Id
    meta: _Meta


class _Answer(_Closed):
    answer_id: _Id
    by: _Actor
    choice: Literal["approve", "reject", "narrow", "abstain", "ask", "reply", "delegate", "escalate"]
    scope: _Scope | None = None
    to: _Id | None = None
    reason: str = ""


class _Quorum(_Open):
    rule: Literal["unanimous", "majority", "threshold"]
    threshold: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _RuleOutcome(_Open):
    rule: str
    source: str
    answer: str
    reason: str = ""
    scope: _Scope | None = None
    to: list[str] = []
    decisive: bool = False
    quorum: _Quorum | None = None


class _Ruling(_Open):
    verdict: Literal["approve", "reject", "wait"]
    authority: str
    reason: str
    approved_scope: _Scope | None = None
    trace: list[_RuleOutcome] = []
    policy_hash: str | None = None
    ask: list[str] = []
    timeout_ms: int | None = None
    on_timeout: Literal["approve", "reject", "escalate"] = "reject"
    step: Annotated[int, msgspec.Meta(ge=1)] | None = None


class _Decision(_Open):
    decision_id: str
    proposal_id: str
    authority: str
    decision: Literal["approved", "rejected"]
    reason: str
    decided_at: int
    approved_scope: _Scope | None = None
    policy_hash: str | None = None
    trace: list[_RuleOutcome] = []


class _Binding(_Open):
    kind: str


class _Policy(_Open):
    name: str
    hash: str


class _Requirement(_Open):
    id: str
    type: str


class _Error(_Open):
    code: str


class _Patch(_Closed):
    op: Literal["set", "unset", "merge"]
    path: str
    value: Any = None


class _Triple(_Open):
    predicate: str
    resource: str


class _Observation(_Triple):
    depth: str
    count: int


class _Violation(_Triple):
    depth: str
    blocked: bool
    message: str
    declared: list[_Triple]


class _Change(_Open):
    kind: str
    resource: str


class _Existence(_Closed):
    resource: str
    exists: bool


class _Projected(_Open):
    kind: Literal["intent", "none"]
    reason: str | None = None
    body: _Body | None = None


SHAPES: Final[Mapping[str, tuple[tuple[str, Any], ...]]] = {
    "actor.registered": (("actor", _Actor),),
    "actor.bound": (("binding", _Binding),),
    "policy.adopted": (("policy", _Policy),),
    "world.sealed": (("patches", list[_Patch]), ("error", _Error | None)),
    "projection.recorded": (("actor", _Actor), ("source", _SourceRef), ("result", _Projected)),
    "proposal.submitted": (("actor", _Actor), ("intent", _Intent)),
    "shadow.configured": (("policy", _Policy | None),),
    "proposal.shadowed": (("ruling", _Ruling),),
    "proposal.judged": (("ruling", _Ruling), ("binding", _Binding)),
    "human.answered": (("answer", _Answer),),
    "decision.made": (("decision", _Decision), ("existence", list[_Existence] | None)),
    "execution.started": (("existence", list[_Existence] | None),),
    "effect.requested": (("requirement", _Requirement),),
    "effect.retried": (("error", _Error),),
    "proposal.failed": (("error", _Error),),
    "verdict.given": (("existence", list[_Existence]),),
    "request.withdrawn": (("existence", list[_Existence] | None),),
    "run.opened": (("declared", list[_Triple]), ("existence", list[_Existence] | None)),
    "run.observed": (("observed", list[_Observation]),),
    "run.violated": (("violation", _Violation),),
    "run.compared": (("changes", list[_Change]), ("foreign", list[_Change])),
    "run.closed": (("unused", list[_Triple]),),
}
"""Per topic: the attributes of its payload that hold embedded values, and their types."""


_COMBINED: Final[Mapping[str, type[msgspec.Struct]]] = {
    topic: msgspec.defstruct("Shaped", list(parts), gc=False) for topic, parts in SHAPES.items()
}
"""``SHAPES`` with one combined type per topic; one check of it costs a fifth of separate checks."""


def check_shapes(topic: str, payload: Any) -> None:
    """Check the embedded values of a payload.

    Args:
        topic: the event's topic.
        payload: the payload, of its newest version.

    Raises:
        msgspec.ValidationError: with the path of the first member that is missing or wrong.
    """
    combined = _COMBINED.get(topic)
    if combined is None:
        return
    try:
        msgspec.convert(payload, combined, from_attributes=True)
    except msgspec.ValidationError:
        _raise_with_attribute(topic, payload)


def _raise_with_attribute(topic: str, payload: Any) -> None:
    """Raise the validation error with the name of the invalid attribute."""
    for name, shape in SHAPES.get(topic, ()):
        try:
            msgspec.convert(getattr(payload, name), shape)
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(f"{name}: {error}") from None
