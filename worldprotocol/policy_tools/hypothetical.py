"""Rulings on hypothetical cases, which were not submitted.

Nothing is recorded. ``worldctl policy ask`` and the HTTP API use this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

from authority import Policy, PolicyRegistry, StandardAuthority, is_policy_file
from authority.policies.loading import policy_from_reference
from world.clock import SystemClock
from world.code.time_limit import TimeLimit
from world.core.validate import check_input
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.decision import Ruling
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentBody, IntentScope
from world.model.patch import Patch, apply_patches
from world.model.record import WireForm
from world.pipeline.shadowing import bound_to
from world.state.ports import Case
from world.state.realm_view import RealmView
from worldprotocol.api.lookup.point_in_time import PointInTime
from worldprotocol.api.realm import Realm
from worldprotocol.policy_tools.explain import explain_trace
from worldprotocol.policy_tools.recorded_cases import Cases

HYPOTHETICAL: Final = "hypothetical"
"""Id of a hypothetical proposal."""

SETTABLE: Final = ("actor.kind", "actor.name", "actor.meta", "intent.type", "intent.input", "base.data", "nowMs")
"""Prefixes of the paths that may be set in a hypothetical case."""


@dataclass(frozen=True, slots=True)
class HypotheticalRuling(WireForm):
    """Hypothetical case and the authority's ruling on it.

    Args:
        case: the judged case.
        ruling: the ruling.
        policy: the description of the policy that judged, None without a policy.
        in_force: whether that policy is the adopted one.
        at_hand: the loaded policy.
        note: the outcome of a real proposal, where it would differ; None where it would be the same.
    """

    case: Case
    ruling: Ruling
    policy: Mapping[str, Any] | None
    in_force: bool
    at_hand: Policy | None = None
    note: str | None = None

    KIND: ClassVar = HYPOTHETICAL
    WIRE: ClassVar = (
        "kind=KIND actor=case.actor action=case.intent.body.type input=case.intent.body.input branch=case.branch "
        "baseWorld=case.base_world submittedAt=case.submitted_at verdict=ruling.verdict authority=ruling.authority "
        "reason=ruling.reason approved_scope ask=ruling.ask policy=judged_by in_force note *explanation"
    )

    @property
    def approved_scope(self) -> IntentScope | None:
        """The approved scope; None where the verdict is no approval."""
        return self.ruling.approved_scope if self.ruling.verdict == "approve" else None

    @property
    def judged_by(self) -> dict[str, Any] | None:
        """Name and hash of the policy."""
        known = self.policy
        return None if known is None else {"name": known["name"], "hash": known["hash"], "position": None}

    @property
    def explanation(self) -> dict[str, Any]:
        """The explanation of every rule."""
        case = self.case
        scope = case.intent.body.scope_proposal
        return explain_trace(self.ruling.to_wire(), self.policy, case, scope, at_hand=self.at_hand)


@dataclass(frozen=True, slots=True)
class Stand:
    """State of the realm for a hypothetical proposal.

    Args:
        realm: actors, bindings, policies and branches.
        base_world: the base world of the proposal.
        branch: the branch of the proposal.
        position: position of the last event of this state.
        now_ms: time of the proposal, ms since 1970-01-01 UTC.
        is_past: whether it is a past state.
    """

    realm: RealmView
    base_world: str
    branch: str
    position: int
    now_ms: int
    is_past: bool = False

    @classmethod
    def of(cls, then: PointInTime, branch: str | None) -> Stand:
        """Return the state at a point in the past.

        Args:
            then: the point.
            branch: on whose head; None is the world that the point names, else the head of the active branch then.

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``.
        """
        base = then.world_id(branch)
        name = branch or then.world.sealed(base).branch
        return cls(then.realm(), base, name, then.position, then.now, is_past=True)


def ask(
    world: Realm,
    actor_id: str,
    body: Mapping[str, Any],
    *,
    branch: str | None = None,
    stand: Stand | None = None,
    sets: Sequence[tuple[str, Any]] = (),
    policy: Policy | None = None,
) -> HypotheticalRuling:
    """Return the ruling on a hypothetical intent, on the head of a branch now or in a past state.

    Args:
        world: a realm that was opened with a domain and policies; read-only access is enough.
        actor_id: a registered actor.
        body: the intent's body in wire form.
        branch: the branch; None is the active one.
        stand: the state to use in place of the current one.
        sets: paths (see ``SETTABLE``) and their values in the hypothetical case.
        policy: the policy to use in place of that of the actor's binding; the voters are those of the binding.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR``, ``ACTOR_NOT_BOUND``, ``UNKNOWN_ACTION``, ``UNKNOWN_BRANCH``, ``INVALID_PATH``,
            ``PATH_NOT_FOUND``, ``TYPE_MISMATCH``, ``INVALID_VALUE``, ``SCHEMA_MISMATCH``, ``LOG_READ_ONLY``.
    """
    stand = stand or _present(world, branch)
    realm = stand.realm
    case = _case(world, actor_id, body, stand, sets)
    bound = realm.bindings.get(actor_id)
    if policy is not None:
        bound = bound_to(bound or {}, policy.name)
    if bound is None:
        raise RefusedError(
            ErrorCode.ACTOR_NOT_BOUND,
            f"{actor_id!r} has no authority binding; bind it first (`worldctl actor bind`), or name a policy.",
            actor_id=actor_id,
        )
    case = replace(case, binding=freeze(bound))
    parts = _parts(world)
    registry = parts.policies if policy is None else PolicyRegistry([policy])
    ruling = StandardAuthority(registry, time_limit=TimeLimit(parts.limits.max_call_ms)).judge(case)
    unfit = None if stand.is_past else _refusal(world, case)
    if ruling.policy_hash is None:
        return HypotheticalRuling(case, ruling, None, in_force=True, note=unfit)
    name = str(bound["policy"])
    adopted = realm.policies.get(name)
    in_force = adopted is not None and adopted.policy_hash == ruling.policy_hash
    own = realm.bindings.get(actor_id)
    note = unfit or _note(world, stand, own, bound, policy_hash=ruling.policy_hash)
    return HypotheticalRuling(case, ruling, registry.describe(name), in_force, registry.get(name), note)


def _present(world: Realm, branch: str | None) -> Stand:
    head = world.branch(branch)
    return Stand(world.realm(), head.head, head.name, world.log.head().size, SystemClock().now_ms())


def _refusal(world: Realm, case: Case) -> str | None:
    """Return a note that a real proposal with this input is refused before it is judged; None where it is not."""
    parts = _parts(world)
    faults = check_input(parts.domain.schema.actions[case.intent.body.type].input, case.intent.body.input)
    if not faults or parts.limits.judge_invalid_input:
        return None
    clauses = "; ".join(f"{fault.path} {fault.message}" for fault in faults)
    return f"a proposal is refused before it is judged, because its input does not fit: {clauses}"


def _note(
    world: Realm, stand: Stand, own: Mapping[str, Any] | None, asked: Mapping[str, Any], *, policy_hash: str
) -> str | None:
    """Return a note on the authority that would judge a real proposal, where it is not the evaluated policy."""
    if stand.is_past:
        adopted = stand.realm.policies.get(str(asked["policy"]))
        if adopted is None or adopted.policy_hash != policy_hash:
            return "the available policy judged, which is not the one that was in force then"
        return None
    if own is None:
        return "the actor is not bound; until it is, its proposals are refused (`worldctl actor bind`)"
    if own.get("kind") != "policy_rules":
        return f"a proposal would be judged by the actor's own binding, {own.get('kind')}"
    name = str(own["policy"])
    adopted = stand.realm.policies.get(name)
    try:
        at_hand = _parts(world).policies.describe(name, None if adopted is None else adopted.policy)["hash"]
    except RefusedError:
        at_hand = None
    if adopted is None or adopted.policy_hash != at_hand:
        return (
            f"a proposal is held: the loaded {name} is not as adopted; adopt it (`worldctl policy adopt {name}`) "
            "or load the adopted one"
        )
    if name != asked["policy"] or at_hand != policy_hash:
        return f"a proposal would be judged by the actor's own policy, {name} as it was adopted"
    return None


def policy_named(given: str, references: Sequence[str], folder: Path) -> Policy:
    """Return a policy by its name, or by a reference to it.

    Args:
        given: the name of an available policy; a policy file; or ``module:attribute``, ``file.py:attribute``.
        references: what ``world.toml`` names.
        folder: where those start; what is given starts at the current folder, or there where that has no such file.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, and what loading it refuses.
    """
    base = folder if not Path(given.partition(".py:")[0]).exists() and (folder / given).exists() else None
    if is_policy_file(given):
        return policy_from_reference(given, base=base)
    registry = PolicyRegistry.installed()
    for reference in references:
        registry.load(reference, base=folder)
    if given not in registry.names() and ":" in given:
        return policy_from_reference(given, base=None if ".py:" in given else folder)
    return registry.get(given)


def _parts(world: Realm) -> Any:
    if world.parts is None:
        raise RefusedError(ErrorCode.LOG_READ_ONLY, "To ask, open the realm with its domain and policies.")
    return world.parts


def _case(
    world: Realm,
    actor_id: str,
    body: Mapping[str, Any],
    stand: Stand,
    sets: Sequence[tuple[str, Any]],
) -> Case:
    parts, realm = _parts(world), stand.realm
    if realm.schema_hash != parts.domain.schema.hash:
        raise RefusedError(
            ErrorCode.SCHEMA_MISMATCH,
            f"The log continues under schema {realm.schema_hash[:12]}, the available domain has "
            f"{parts.domain.schema.hash[:12]}; ask with the domain in force.",
            in_force=realm.schema_hash,
            at_hand=parts.domain.schema.hash,
        )
    if actor_id not in realm.actors:
        raise RefusedError(ErrorCode.UNKNOWN_ACTOR, f"The actor {actor_id!r} is not registered (`worldctl actor add`).")
    cases = Cases(world.archive, parts.domain)
    rendered = _changed(
        {
            "actor": realm.actors[actor_id].to_wire(),
            "intent": {"type": body.get("type"), "input": body.get("input")},
            "base": {"data": world.data(stand.base_world)},
            "nowMs": stand.now_ms,
        },
        sets,
    )
    wanted = IntentBody.read({**body, **rendered["intent"]})
    known = sorted(parts.domain.schema.actions)
    if wanted.type not in known:
        raise RefusedError(
            ErrorCode.UNKNOWN_ACTION, f"The domain has no action {wanted.type!r}; it has {', '.join(known)}."
        )
    actor = ActorRef.read(rendered["actor"])
    intent = parts.issue(actor, wanted, realm.schema_hash)
    return cases.made(
        intent,
        actor,
        {},
        proposal_id=HYPOTHETICAL,
        base_world=stand.base_world,
        view=cases.seen(rendered["base"]["data"]),
        schema_hash=realm.schema_hash,
        branch=stand.branch,
        submitted_at=_moment(rendered["nowMs"]),
        earlier_attempts=_attempts(world, intent.intent_key, stand),
        before=stand.position + 1,
    )


def _attempts(world: Realm, intent_key: str, stand: Stand) -> int:
    """Return the number of earlier proposals with an intentKey."""
    if not stand.is_past:
        rows = world.archive.rows("attempts", {"of_key": intent_key})
        return int(rows[0][0] or 0) if rows else 0
    names = [str(name) for (name,) in world.archive.rows("proposals_by_key", {"of_key": intent_key})]
    return sum(world.log.stream(name, limit=1)[0].position <= stand.position for name in names)


def _changed(rendered: Mapping[str, Any], sets: Sequence[tuple[str, Any]]) -> FrozenDict:
    """Return the members of the hypothetical case, with the values that were set."""
    document: FrozenDict = freeze(dict(rendered))
    for path, value in sets:
        if "[" in path or not any(path == root or path.startswith(f"{root}.") for root in SETTABLE):
            raise RefusedError(
                ErrorCode.INVALID_PATH,
                f"{path!r} cannot be set; a path begins with one of {', '.join(SETTABLE)}, and continues with dots.",
                path=path,
                known=list(SETTABLE),
            )
        document = apply_patches(document, [Patch.from_wire({"op": "set", "path": path, "value": freeze(value)})])
    return document


def _moment(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"nowMs is a number of milliseconds since 1970, not {value!r:.60}.")
    return value
