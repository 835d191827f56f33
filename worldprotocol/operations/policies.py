"""Operations on policies: the list, one version, adoption and retirement, evaluation in shadow, and questions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, convert, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, OperationCall, Paged, RequestForm, operation
from worldprotocol.operations.fields import HASH, NOW, WORLD, At, AtPoint, Limit, Name, Position, Reason
from worldprotocol.operations.records import ACTOR, ExplainedRule, ExplainedRuling, RulingPolicy, ScopeForm, VerdictWord

RECENT: Final = 10_000
"""Events at the end of the log in which the use of a policy is counted."""

MAX_LINES: Final = 200
"""Disagreements that the answer about a version lists; all are counted."""

HashPrefix = Annotated[str, Meta(pattern="^[0-9a-f]{6,64}$")]


class PolicyInForce(AnswerForm, frozen=True, kw_only=True):
    """A policy in force with its rules, as it was adopted; `adoptedAt` is in ms since 1970."""

    name: str
    policy_hash: str
    adopted_at: int
    by: str
    policy: dict[str, Any]


class PolicyState(AnswerForm, frozen=True, kw_only=True):
    """The state of an adopted, retired or loaded policy: the hashes of the version in force and of the loaded one."""

    name: str
    adopted: str | None
    at_hand: str | None
    note: str
    replaced: str | None
    position: int | None


class PolicyChangeForm(AnswerForm, frozen=True, kw_only=True):
    """An adoption, a retirement, or the configuration of a shadow policy; `changed` counts differences by kind."""

    position: int
    at: int
    event: Literal["adopted", "retired", "shadowed"]
    name: str
    hash: str
    by: str
    replaced: str | None = None
    reason: str | None = None
    changed: dict[str, int] | None = None


class ListedPolicies(AnswerForm, frozen=True, kw_only=True):
    """Policies in force, the state of every known one, and the newest 200 changes."""

    policies: list[PolicyInForce]
    states: list[PolicyState]
    history: list[PolicyChangeForm]


_CHANGE: Final = PolicyChangeForm(position=4, at=NOW, event="adopted", name="house", hash=HASH, by="operator")


@operation(
    "policies.list",
    "GET /policies",
    "reader auditor",
    kind="whole",
    example=(
        AtPoint(),
        ListedPolicies(
            policies=[
                PolicyInForce(name="house", policy_hash=HASH, adopted_at=NOW, by="operator", policy={"name": "house"})
            ],
            states=[PolicyState(name="house", adopted=HASH, at_hand=HASH, note="in force", replaced=None, position=4)],
            history=[_CHANGE],
        ),
    ),
)
def list_policies(call: OperationCall, request: AtPoint) -> ListedPolicies:
    """List the policies in force with their rules, the state of every known one, and the newest changes."""
    from worldprotocol.policy_tools.history import changes_of
    from worldprotocol.policy_tools.listing import list_policies as states_of
    from worldprotocol.policy_tools.listing import loaded_hashes
    from worldprotocol.policy_tools.versions import MAX_HISTORY

    realm, view = call.hosted.realm, call.view_at(request.at)
    changes = changes_of(realm, view.position)
    policies = [
        PolicyInForce(name=one.name, policy_hash=one.policy_hash, adopted_at=one.at, by=one.by, policy=one.policy)
        for one in view.policies.values()
    ]
    states = states_of(changes, *loaded_hashes(realm._composed.policies, changes))
    history = [one.to_wire() for one in changes[-MAX_HISTORY:]]
    return convert({"policies": policies, "states": states, "history": history}, ListedPolicies)


class ReadPolicy(RequestForm, frozen=True, kw_only=True):
    """A version of a policy, the version that it is compared with, and a point in the past; absent, now."""

    named: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1_100,
            description="Name of a policy, NAME@HASH, or the hash of a version; a hash may be shortened.",
        ),
    ]
    against: Annotated[HashPrefix, Meta(description="Compare with this version.")] | None = None
    at: At | None = None


class RuleUse(AnswerForm, frozen=True, kw_only=True):
    """How often a rule applied, decided and failed."""

    applied: int
    decided: int
    errors: int


class PolicyUse(AnswerForm, frozen=True, kw_only=True):
    """The decisions by a version after one event and up to another, and the use of its rules by name."""

    after: int
    upto: int
    decisions: int
    rules: dict[str, RuleUse]


class ShadowedPolicy(AnswerForm, frozen=True, kw_only=True):
    """A version that judged in shadow, and how often; without a hash, it could not be asked."""

    name: str
    hash: str | None
    times: int


class ComparedRuling(AnswerForm, frozen=True, kw_only=True):
    """A ruling, by whichever policy, and the rules that decided."""

    verdict: VerdictWord
    authority: str
    reason: str
    policy_hash: str | None
    approved_scope: ScopeForm | None
    ask: list[str]
    decided_by: list[str]


class ShadowRuling(ComparedRuling, frozen=True, kw_only=True):
    """A ruling in shadow, and the name of its policy."""

    name: str


class Disagreement(AnswerForm, frozen=True, kw_only=True):
    """A proposal on which the shadow policy said something else, or could not be asked.

    ``change`` is in what they differ, and ``decision`` the end of a proposal that waited for people.
    """

    kind: Literal["disagree", "notAsked"]
    position: int
    proposal_id: str
    actor: str
    action: str
    input: Any
    branch: str
    submitted_at: int
    change: Literal["verdict", "scope", "question"] | None = None
    ruling: ComparedRuling
    shadow: ShadowRuling
    decision: Literal["approved", "rejected"] | None = None


class ShadowCounts(AnswerForm, frozen=True, kw_only=True):
    """How often shadow policies were asked, and how often both agreed; with the proposals on which they did not."""

    shadowed: int
    agree: int
    disagree: int
    not_asked: int
    policies: list[ShadowedPolicy]
    disagreements: list[Disagreement]


class ShadowStretch(ShadowCounts, frozen=True, kw_only=True):
    """The same after one event and up to another; the newest disagreement is the first one."""

    after: int
    upto: int
    more_disagreements: bool


class PolicyVersion(AnswerForm, frozen=True, kw_only=True):
    """A version of a policy: its rules with their use in the newest events, and its differences from another one.

    The members of rules and differences depend on the language of the policy.
    """

    name: str
    hash: str
    is_in_force: bool
    version: str | None
    combination: str
    history: list[PolicyChangeForm]
    rules: list[dict[str, Any]]
    use: PolicyUse
    against: str | None
    differences: list[dict[str, Any]]
    shadows: ShadowStretch


@operation(
    "policies.read",
    "GET /policies/{named}",
    "reader auditor",
    kind="whole",
    example=(
        ReadPolicy(named="house"),
        PolicyVersion(
            name="house",
            hash=HASH,
            is_in_force=True,
            version=None,
            combination="strictest",
            history=[_CHANGE],
            rules=[{"id": "small", "effect": "approve"}],
            use=PolicyUse(after=0, upto=80, decisions=9, rules={"small": RuleUse(applied=8, decided=7, errors=0)}),
            against=None,
            differences=[],
            shadows=ShadowStretch(
                after=0,
                upto=80,
                shadowed=0,
                agree=0,
                disagree=0,
                not_asked=0,
                policies=[],
                disagreements=[],
                more_disagreements=False,
            ),
        ),
    ),
)
def read_policy(call: OperationCall, request: ReadPolicy) -> PolicyVersion:
    """Return a version of a policy: its rules with their use in the newest events, and its differences from another.

    Without `against` it is compared with the version before it.
    """
    from worldprotocol.analysis.shadow_results import shadows_of
    from worldprotocol.policy_tools.versions import describe_version

    realm, upto = call.hosted.realm, call.moment(request.at).position
    after = max(0, upto - RECENT)
    found = describe_version(realm, request.named, against=request.against, after=after, upto=upto)
    shadows = shadows_of(realm, None, upto, after=after).to_wire()
    lines = shadows["disagreements"][::-1]
    listed = {"disagreements": lines[:MAX_LINES], "moreDisagreements": len(lines) > MAX_LINES}
    return convert({**found, "shadows": {"after": after, "upto": upto, **shadows, **listed}}, PolicyVersion)


class AdoptPolicy(RequestForm, frozen=True, kw_only=True):
    """The name of a policy that the program of the realm has loaded."""

    name: Name


class AdoptedPolicy(AnswerForm, frozen=True, kw_only=True):
    """A policy in force; `adopted` is false where this version was in force already."""

    name: str
    policy_hash: str
    adopted: bool


def _in_force(call: OperationCall, name: str, *, adopted: bool) -> AdoptedPolicy:
    known = call.hosted.realm.realm().policies.get(name)
    if known is None:
        raise RefusedError(ErrorCode.POLICY_NOT_ADOPTED, f"The policy {name!r} was retired meanwhile.", policy=name)
    policy_hash = known.policy_hash
    return AdoptedPolicy(name=name, policy_hash=policy_hash, adopted=adopted)


@operation(
    "policies.adopt",
    "POST /policies",
    "operator",
    again=lambda _, request, events: AdoptedPolicy(name=request.name, policy_hash=events[0].policy_hash, adopted=True),
    example=(AdoptPolicy(name="house"), AdoptedPolicy(name="house", policy_hash=HASH, adopted=True)),
)
def adopt_policy(call: OperationCall, request: AdoptPolicy) -> AdoptedPolicy:
    """Bring a policy into force that the program of the realm has loaded."""
    is_new = call.realm.adopt_policy(request.name, by=call.actor_id)
    return _in_force(call, request.name, adopted=is_new)


class RetirePolicy(RequestForm, frozen=True, kw_only=True):
    """A policy in force that no binding uses, and why it is retired."""

    name: Name
    reason: Reason


class RetiredPolicy(AnswerForm, frozen=True, kw_only=True):
    """The version that was in force."""

    name: str
    policy_hash: str


@operation(
    "policies.retire",
    "POST /policies/{name}:retire",
    "operator",
    again=lambda _, request, events: RetiredPolicy(name=request.name, policy_hash=events[0].policy_hash),
    example=(RetirePolicy(name="house", reason="replaced"), RetiredPolicy(name="house", policy_hash=HASH)),
)
def retire_policy(call: OperationCall, request: RetirePolicy) -> RetiredPolicy:
    """Take a policy out of force."""
    policy_hash = call.realm.retire_policy(request.name, by=call.actor_id, reason=request.reason)
    return RetiredPolicy(name=request.name, policy_hash=policy_hash)


class ShadowPolicy(RequestForm, frozen=True, kw_only=True):
    """A loaded policy to evaluate in shadow, for the record only, for these actors or for all; null ends it."""

    name: Name | None
    actors: Annotated[list[Name], Meta(max_length=1_000)] = field(default_factory=list)


class ShadowState(AnswerForm, frozen=True, kw_only=True):
    """The policy in shadow; null for none. `changed` is false where it was the same before."""

    name: str | None
    changed: bool


def _shadowed(_: OperationCall, request: ShadowPolicy, __: Sequence[Any]) -> ShadowState:
    return ShadowState(name=request.name, changed=True)


@operation(
    "policies.shadow",
    "POST /policies:shadow",
    "operator",
    again=_shadowed,
    example=(ShadowPolicy(name="draft", actors=["bot"]), ShadowState(name="draft", changed=True)),
)
def shadow_policy(call: OperationCall, request: ShadowPolicy) -> ShadowState:
    """Evaluate a loaded policy in shadow, or end that."""
    is_new = call.realm.shadow(request.name, actors=request.actors, by=call.actor_id)
    return ShadowState(name=request.name, changed=is_new)


class ListShadowed(RequestForm, frozen=True, kw_only=True):
    """Of which policy, up to which point in the past; absent, all of them, now."""

    of: Annotated[Name, Meta(description="Only what the policy of this name said.")] | None = None
    limit: Limit = 50
    before: Annotated[Position, Meta(description="`next` of the page before.")] = 2**53
    at: At | None = None


class ConfiguredShadow(AnswerForm, frozen=True, kw_only=True):
    """The policy in shadow, null for none, and the actors that it is limited to; without any, all."""

    name: str | None
    hash: str | None
    actors: list[str]


class Shadowed(ShadowCounts, frozen=True, kw_only=True):
    """How often shadow policies agreed in the whole log, and the disagreements, newest first.

    ``next`` is `before` of the next page, null after the last one.
    """

    configured: ConfiguredShadow
    next: int | None


@operation(
    "policies.shadowed",
    "GET /policies:shadowed",
    "reader auditor",
    kind="whole",
    page=Paged("disagreements", "before"),
    example=(
        ListShadowed(of="draft"),
        Shadowed(
            configured=ConfiguredShadow(name="draft", hash=HASH, actors=[]),
            shadowed=9,
            agree=9,
            disagree=0,
            not_asked=0,
            policies=[ShadowedPolicy(name="draft", hash=HASH, times=9)],
            disagreements=[],
            next=None,
        ),
    ),
)
def list_shadowed(call: OperationCall, request: ListShadowed) -> Shadowed:
    """Compare what shadow policies said with the first ruling on each proposal."""
    from worldprotocol.analysis.shadow_results import shadow_wire, shadows_of

    then = call.moment(request.at)
    found = shadows_of(call.hosted.realm, request.of, then.position).to_wire()
    lines = [one for one in reversed(found["disagreements"]) if one["position"] < request.before]
    shown, more = lines[: request.limit], len(lines) > request.limit
    wire = {
        **found,
        "disagreements": shown,
        "configured": shadow_wire(call.view_at(request.at).shadow),
        "next": shown[-1]["position"] if more else None,
    }
    return convert(wire, Shadowed)


class SetValue(RequestForm, frozen=True, kw_only=True):
    """Another value for one question: the path begins with actor, intent, base.data or nowMs."""

    path: Annotated[str, Meta(min_length=1, max_length=4_000)]
    value: Any


class AskPolicy(RequestForm, frozen=True, kw_only=True):
    """An intent that was not submitted, and what would be different; `policy` is a loaded one.

    Without ``branch`` it is on the world that `at` names, or on the head of the active branch.
    """

    actor: Name
    action: Name
    input: Any = None
    scope: Annotated[list[Name], Meta(max_length=10_000)] = field(default_factory=list)
    set: Annotated[list[SetValue], Meta(max_length=1_000)] = field(default_factory=list)
    policy: Name | None = None
    branch: Name | None = None
    at: At | None = None


class PolicyAnswer(ExplainedRuling, frozen=True, kw_only=True):
    """What would be decided about an intent, and why; `note` is what a real proposal would come to, if it differs."""

    kind: Literal["hypothetical"]
    verdict: VerdictWord
    ask: list[str]
    in_force: bool


@operation(
    "policies.ask",
    "POST /policies:ask",
    "reader auditor",
    kind="whole",
    example=(
        AskPolicy(actor="bot", action="order.place", input={"item": "tea"}),
        PolicyAnswer(
            kind="hypothetical",
            actor=ACTOR,
            action="order.place",
            input={"item": "tea"},
            branch="main",
            base_world=WORLD,
            submitted_at=NOW,
            verdict="approve",
            authority="policy_rules:house",
            reason="small orders",
            approved_scope=None,
            ask=[],
            policy=RulingPolicy(name="house", hash=HASH, position=None),
            in_force=True,
            note=None,
            rules=[
                ExplainedRule(
                    rule="small", source="house.toml:3", answer="approve", decisive=True, role="decided", reason="small"
                )
            ],
            people=[],
            engine=None,
            decided_by=["small"],
            by_default=False,
            changes=None,
        ),
    ),
)
def ask_policy(call: OperationCall, request: AskPolicy) -> PolicyAnswer:
    """Return what would be decided about an intent, rule by rule; nothing is recorded, and no lease is asked for."""
    from worldprotocol.policy_tools.hypothetical import Stand, ask

    realm, body = call.hosted.realm, {"type": request.action, "input": request.input}
    found = ask(
        realm,
        request.actor,
        body | ({"scopeProposal": {"allowedPaths": request.scope}} if request.scope else {}),
        branch=request.branch,
        stand=None if request.at is None else Stand.of(call.moment(request.at), request.branch),
        sets=[(one.path, one.value) for one in request.set],
        policy=None if request.policy is None else realm._composed.policies.get(request.policy),
    )
    return convert(found.to_wire(), PolicyAnswer)
