"""Hypothesis strategies for the values of the protocol (extra ``testing``).

    from hypothesis import given
    from worldprotocol.testing import strategies as wp

    @given(wp.cases())
    def test_the_policy_never_fails(case): ...

Whatever a strategy makes is accepted by its type and comes back from its wire form as it was. Values are small, and odd
where people forget it: empty texts, keys with dots and stars in them, numbers at the ends of their ranges.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, get_args

from world.extras import missing_extra

try:
    from hypothesis import strategies as st
except ImportError:
    raise missing_extra("Strategies", "hypothesis", "testing") from None

from authority import Policy
from world.core import Domain
from world.klis.manifest import Manifest, read_manifest
from world.klis.predicate import Predicate
from world.klis.settings import KlisSettings
from world.klis.triple import Confidence, Triple, read_triple
from world.model.actor import ActorKind, ActorRef
from world.model.decision import DecisionRecord, HumanAnswer, HumanChoice, Quorum, RuleAnswer, RuleOutcome, Ruling
from world.model.immutable_json import MAX_SAFE_INTEGER
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin, IntentScope
from world.model.patch import Patch, PatchOp
from world.model.paths import format_path
from world.model.snapshot import ErrorValue, Meta, Requirement, Snapshot, Status, System
from world.model.source import SourceEvent, SourceKind, SourceRef
from world.state.ports import Case
from worldprotocol.policy_tools.cases import CaseDefaults, CaseEntry
from worldprotocol.testing.event_strategies import (
    events,
    hashes,
    identifiers,
    json_objects,
    json_values,
    milliseconds,
    texts,
)
from worldprotocol.testing.making import NO_SCHEMA, Maker

__all__ = [
    "actors",
    "case_entries",
    "cases",
    "decisions",
    "errors",
    "events",
    "hashes",
    "human_answers",
    "identifiers",
    "intent_bodies",
    "intents",
    "json_objects",
    "json_values",
    "manifests",
    "milliseconds",
    "names",
    "patches",
    "paths",
    "requirements",
    "resources",
    "rule_outcomes",
    "rulings",
    "scope_patterns",
    "scopes",
    "snapshots",
    "source_events",
    "texts",
    "triples",
]

_NAMES: Final = ("a", "b", "name", "data", "0", "1", "17", "x.y", "*", "\\", "é", "😀", " ")
_PIECES: Final = ("a", "b", "name", "data", "0", "x\\.y", "*", "\\*", "\\\\", "é")
_FILES: Final = ("a", "b", "c", "src", "main.py", "é", "A b")


def names() -> st.SearchStrategy[str]:
    """Return keys of objects in the data, among them such as need escapes in a path."""
    return st.sampled_from(_NAMES)


def paths(*, min_size: int = 0, max_size: int = 4) -> st.SearchStrategy[str]:
    """Return paths into data, as patches have them; of this many names."""
    return st.lists(names(), min_size=min_size, max_size=max_size).map(lambda found: format_path(tuple(found)))


def scope_patterns() -> st.SearchStrategy[str]:
    """Return patterns of places in the data: ``data.a.*``, ``b.*.0``."""
    pieces = st.lists(st.sampled_from(_PIECES), min_size=1, max_size=4).map(".".join)
    return st.builds("{}{}".format, st.sampled_from(["", "data."]), pieces)


def scopes() -> st.SearchStrategy[IntentScope]:
    """Return scopes; those without patterns restrict nothing."""
    patterns = st.none() | st.lists(scope_patterns(), max_size=3).map(tuple)
    return st.builds(IntentScope, allowed_paths=patterns, note=_maybe(texts()))


def actors(*, kinds: tuple[ActorKind, ...] = get_args(ActorKind)) -> st.SearchStrategy[ActorRef]:
    """Return actors of these kinds."""
    return st.builds(
        ActorRef,
        actor_id=identifiers(),
        kind=st.sampled_from(kinds),
        name=_maybe(texts()),
        meta=_maybe(json_objects()),
    )


def source_events() -> st.SearchStrategy[SourceEvent]:
    """Return source events, as projections and bridges get them."""
    return st.builds(
        SourceEvent,
        kind=st.sampled_from(get_args(SourceKind)),
        event_id=identifiers(),
        payload=json_values(),
        occurred_at=_maybe(milliseconds()),
    )


def intent_bodies(
    *, types: st.SearchStrategy[str] | None = None, inputs: st.SearchStrategy[Any] | None = None
) -> st.SearchStrategy[IntentBody]:
    """Return bodies of intents.

    Args:
        types: names of actions; None is any.
        inputs: their inputs; None is any JSON.
    """
    return st.builds(
        IntentBody,
        type=identifiers() if types is None else types,
        input=json_values() if inputs is None else inputs,
        scope_proposal=_maybe(scopes()),
    )


def intents(
    *,
    bodies: st.SearchStrategy[IntentBody] | None = None,
    by: st.SearchStrategy[ActorRef] | None = None,
    schema_hash: str = NO_SCHEMA,
) -> st.SearchStrategy[IntentInstance]:
    """Return issued intents; their intentKey is that of their body under the schema.

    Args:
        bodies: what is wanted; None is any.
        by: the proposing actor; None is any actor.
        schema_hash: of the schema in force.
    """
    origins = st.builds(
        IntentOrigin,
        projection_id=identifiers(),
        source=st.builds(SourceRef, kind=st.sampled_from(get_args(SourceKind)), event_id=identifiers()),
        actor=actors() if by is None else by,
        note=_maybe(texts()),
    )

    def issued(body: IntentBody, intent_id: str, origin: IntentOrigin) -> IntentInstance:
        return IntentInstance(
            body=body, intent_id=intent_id, intent_key=body.key(schema_hash), meta=IntentMeta(origin=origin)
        )

    return st.builds(issued, intent_bodies() if bodies is None else bodies, identifiers(), origins)


def patches(
    *,
    at: st.SearchStrategy[str] | None = None,
    values: st.SearchStrategy[Any] | None = None,
    keys: st.SearchStrategy[str] | None = None,
) -> st.SearchStrategy[Patch]:
    """Return patches; they need not fit any data.

    Args:
        at: their paths; None is any.
        values: what is set; None is any JSON.
        keys: of the members that are merged; None is any.
    """
    where = paths() if at is None else at
    what = json_values() if values is None else values
    ops: Mapping[PatchOp, st.SearchStrategy[Any]] = {
        "set": what,
        "unset": st.none(),
        "merge": st.dictionaries(names() if keys is None else keys, what, max_size=3),
    }
    return st.one_of(*(st.builds(Patch, st.just(op), where, value) for op, value in ops.items()))


def errors() -> st.SearchStrategy[ErrorValue]:
    """Return error values in the form of snapshots."""
    context = _maybe(json_objects())
    return st.builds(ErrorValue.at, identifiers(), texts(), identifiers(), texts(), milliseconds(), context)


def requirements() -> st.SearchStrategy[Requirement]:
    """Return effects that a computation waits for."""
    return st.builds(Requirement, hashes(), identifiers(), json_objects(), identifiers(), texts())


def snapshots() -> st.SearchStrategy[Snapshot]:
    """Return snapshots of any status; a status and its errors need not have come of an execution."""
    system = st.builds(
        System,
        status=st.sampled_from(get_args(Status)),
        last_error=_maybe(errors()),
        errors=st.lists(errors(), max_size=2).map(tuple),
        pending_requirements=st.lists(requirements(), max_size=2).map(tuple),
        current_action=_maybe(identifiers()),
    )
    meta = st.builds(Meta, st.integers(0, MAX_SAFE_INTEGER), milliseconds(), texts(), hashes())
    computed = st.dictionaries(names().map("computed.{}".format), json_values(), max_size=2)

    def snapshot(data: Any, found: Any, status: System, given: Any, rendered: Meta) -> Snapshot:
        wire = {"data": data, "computed": found, "system": status.to_wire(), "input": given, "meta": rendered.to_wire()}
        return Snapshot.from_wire(wire)

    return st.builds(snapshot, json_objects(), computed, system, json_values(), meta)


def rule_outcomes() -> st.SearchStrategy[RuleOutcome]:
    """Return what rules said."""
    quorums = st.builds(Quorum, st.sampled_from(["unanimous", "majority"])) | st.builds(
        Quorum, st.just("threshold"), st.integers(1, 9)
    )
    return st.builds(
        RuleOutcome,
        rule=identifiers(),
        source=texts(),
        answer=st.sampled_from(get_args(RuleAnswer)),
        reason=texts(),
        scope=_maybe(scopes()),
        to=st.lists(identifiers(), max_size=2).map(tuple),
        decisive=st.booleans(),
        quorum=_maybe(quorums),
    )


def rulings() -> st.SearchStrategy[Ruling]:
    """Return rulings; what counts for one verdict only is there with that one."""
    common: dict[str, st.SearchStrategy[Any]] = {
        "authority": identifiers(),
        "reason": texts(),
        "trace": st.lists(rule_outcomes(), max_size=3).map(tuple),
        "policy_hash": _maybe(hashes()),
        "step": st.integers(0, 3),
    }
    waits = st.builds(
        Ruling,
        verdict=st.just("wait"),
        ask=st.lists(identifiers(), max_size=3).map(tuple),
        timeout_ms=_maybe(st.integers(0, MAX_SAFE_INTEGER)),
        on_timeout=st.sampled_from(["approve", "reject", "escalate"]),
        **common,
    )
    approves = st.builds(Ruling, verdict=st.just("approve"), approved_scope=_maybe(scopes()), **common)
    return waits | approves | st.builds(Ruling, verdict=st.just("reject"), **common)


def human_answers() -> st.SearchStrategy[HumanAnswer]:
    """Return what people said; it need not be fitting."""
    return st.builds(
        HumanAnswer,
        answer_id=identifiers(),
        by=actors(),
        choice=st.sampled_from(get_args(HumanChoice)),
        scope=_maybe(scopes()),
        to=_maybe(identifiers()),
        reason=texts(),
    )


def decisions() -> st.SearchStrategy[DecisionRecord]:
    """Return decision records."""
    common: dict[str, st.SearchStrategy[Any]] = {
        "decision_id": identifiers(),
        "proposal_id": identifiers(),
        "authority": identifiers(),
        "reason": texts(),
        "decided_at": milliseconds(),
        "policy_hash": _maybe(hashes()),
        "trace": st.lists(rule_outcomes(), max_size=2).map(tuple),
    }
    approved = st.builds(DecisionRecord, decision=st.just("approved"), approved_scope=_maybe(scopes()), **common)
    return approved | st.builds(DecisionRecord, decision=st.just("rejected"), **common)


def resources() -> st.SearchStrategy[str]:
    """Return resources in canonical form, of every kind: paths, subtrees, URLs and opaque names."""
    below = st.lists(st.sampled_from(_FILES), min_size=1, max_size=3).map("/".join)
    ending = st.sampled_from(["", "/*"])
    trees = st.builds("{}:/{}{}".format, st.sampled_from(["FILE", "STATE"]), below, ending)
    urls = st.builds(
        "URL:https://{}/{}{}".format, st.sampled_from(["example.com", "mail.example"]), st.sampled_from("abc"), ending
    )
    opaque = st.sampled_from(["SYMBOL:User.authenticate", "DATABASE_TABLE:users", "CONFIG_KEY:a.b", "PROCESS:git"])
    return trees | urls | opaque


def triples() -> st.SearchStrategy[Triple]:
    """Return triples: a predicate on a resource, with a confidence."""
    return st.builds(
        read_triple,
        st.sampled_from([one.value for one in Predicate]),
        resources(),
        confidence=st.sampled_from([one.value for one in Confidence]),
    )


def manifests() -> st.SearchStrategy[Manifest]:
    """Return manifests that may be arbitrated: no two of their claims meet, and none is wide."""
    claim = st.tuples(st.sampled_from([one.value for one in Predicate]), st.booleans(), _confidences())

    def scope(claims: list[tuple[str, bool, Any]]) -> list[dict[str, Any]]:
        found = []
        for at, (predicate, is_tree, confidence) in enumerate(claims):
            ending = "/*" if is_tree else ""
            one = {"predicate": predicate, "resource": f"FILE:/src/{at}/old{ending}"}
            if predicate == Predicate.RENAMES:
                one["to"] = f"FILE:/src/{at}/new{ending}"
            found.append(one if confidence is None else {**one, "confidence": confidence})
        return found

    names_of = st.text(st.sampled_from("abc-_0é "), min_size=1, max_size=8)
    document = st.fixed_dictionaries(
        {
            "ver": st.sampled_from(["1.0", "1.17"]),
            "session_id": names_of,
            "agent_id": names_of,
            "scope": st.lists(claim, min_size=1, max_size=4).map(scope),
        },
        optional={
            "priority_timestamp": st.integers(0, MAX_SAFE_INTEGER),
            "ordered": st.booleans(),
            "issued_at": st.integers(0, MAX_SAFE_INTEGER),
            "nonce": names_of,
        },
    )
    return document.map(lambda rendered: read_manifest(rendered, settings=KlisSettings()))


def _confidences() -> st.SearchStrategy[str | float | None]:
    return st.none() | st.sampled_from([one.value for one in Confidence]) | st.floats(0, 1)


def case_entries() -> st.SearchStrategy[CaseEntry]:
    """Return cases in the form of a file of cases, without their expectations."""
    decision = st.sampled_from([{}, {"decision": "rejected"}, {"outcome": "failed"}, {"outcome": "completed"}])
    past = st.builds(
        lambda actor, action, given, how, times: {
            "actor": actor, "action": action, "input": given, "times": times, **how,
        },
        identifiers(), identifiers(), json_values(), decision, st.integers(1, 9),
    )  # fmt: skip
    actor = actors().map(
        lambda one: {"id": one.actor_id, "kind": one.kind, **({} if one.meta is None else {"meta": one.meta})}
    )
    intent = st.fixed_dictionaries(
        {"type": identifiers(), "input": json_values()},
        optional={"scope": st.lists(scope_patterns(), min_size=1, max_size=3)},
    )
    wire = st.fixed_dictionaries(
        {"name": identifiers(), "actor": actor, "intent": intent},
        optional={
            "base": json_objects().map(lambda data: {"data": data}),
            "history": st.lists(past, max_size=3),
            "now": st.integers(0, 4_102_444_800_000),
            "branch": identifiers(),
        },
    )
    return wire.map(CaseEntry.read)


def cases(*, domain: Domain | None = None, given: Mapping[str, Any] | None = None) -> st.SearchStrategy[Case]:
    """Return cases for an Authority or a rule: actor, intent, state and history.

    Args:
        domain: for computed values, specs of actions and what they declare.
        given: what all cases have in common, as in a file of cases; a case's own part counts before it.
    """
    maker = Maker(Policy("any", []), domain, CaseDefaults.read(dict(given or {})))
    return case_entries().map(maker.case)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy
