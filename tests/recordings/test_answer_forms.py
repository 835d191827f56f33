"""The forms of answers have every member of the recorded values that they show."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import structs

from tests.support.tables import for_each
from world.events.resource_values import ChangedResource, GrantedLease, ObservedEffect, ResourceClaim, UndeclaredEffect
from world.model.actor import ActorKind, ActorRef
from world.model.decision import (
    DecisionRecord,
    HumanAnswer,
    HumanChoice,
    Quorum,
    RuleAnswer,
    RuleOutcome,
    Ruling,
    Verdict,
)
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin, IntentScope
from world.model.patch import Patch
from world.model.snapshot import ErrorSource, ErrorValue, Requirement
from world.model.source import SourceEvent, SourceKind
from world.read_models.live.offered_effects import OfferedEffect
from world.state.effect_claim import DeclaredTriple, EffectClaim, EffectDoubt, UnreadableDoubt
from world.state.proposal import Status
from worldprotocol.operations import fields, records, runs, worlds
from worldprotocol.operations.acting import effects, lease_requests
from worldprotocol.operations.declaring import AnswerForm
from worldprotocol.policy_tools.explain import Role
from worldprotocol.runs.governed import Mode
from worldprotocol.runs.outcomes import Kind, Outcome

FORMS: dict[Any, type[AnswerForm]] = {
    ActorRef: records.ActorForm,
    SourceEvent: records.SourceForm,
    IntentScope: records.ScopeForm,
    IntentBody: records.BodyForm,
    IntentOrigin: records.OriginForm,
    IntentMeta: records.IntentMetaForm,
    IntentInstance: records.IntentForm,
    Quorum: records.QuorumForm,
    RuleOutcome: records.OutcomeForm,
    Ruling: records.RulingForm,
    DecisionRecord: records.DecisionForm,
    HumanAnswer: records.GivenAnswer,
    ErrorSource: records.ErrorPlace,
    ErrorValue: records.ErrorForm,
    Patch: worlds.PatchForm,
    ResourceClaim: fields.NamedClaim,
    GrantedLease: lease_requests.Granted,
    ObservedEffect: runs.ObservedForm,
    UndeclaredEffect: runs.ViolationForm,
    ChangedResource: runs.ChangeForm,
    OfferedEffect: effects.OfferedForm,
    Requirement: effects.RequirementForm,
    DeclaredTriple: effects.DeclaredForm,
    EffectClaim: effects.ClaimForm,
    EffectDoubt: effects.DoubtForm,
    UnreadableDoubt: effects.UnreadableForm,
}


@for_each("record", FORMS, ids=[one.__name__ for one in FORMS])
def test_a_form_has_the_members_of_the_recorded_value(record: Any) -> None:
    form = FORMS[record]
    assert {one.encode_name for one in structs.fields(record)} == {one.encode_name for one in structs.fields(form)}


def test_the_words_of_forms_are_those_of_the_engine() -> None:
    assert get_args(Status) == get_args(records.ProposalStatus)
    assert get_args(Verdict) == get_args(records.VerdictWord)
    assert get_args(RuleAnswer) == get_args(records.RuleAnswer)
    assert get_args(HumanChoice) == get_args(records.Choice)
    assert get_args(ActorKind) == get_args(records.ActorKind)
    assert get_args(SourceKind) == get_args(records.SourceKind)
    assert get_args(Role) == get_args(records.Part)
    assert get_args(Kind) == get_args(runs.RunKind)
    assert get_args(Mode) == get_args(runs.RunMode)
    assert ("open", *get_args(Outcome)) == get_args(runs.RunOutcome)
