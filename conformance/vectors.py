"""What other implementations compare with: from the input of a test vector to its expected form.

The formats are those of ``tests/vectors``: numbers that JSON cannot carry are written as ``{"$vec": "-0"}`` and the
like, and for expressions integers beyond 2^53 are doubles. The engine's own functions compute everything.
Sources: INT-6.2.1, INT-7.4.4, WP-hash, WP-world, HC-flow, HC-compute.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from world.core import (
    Computation,
    ComputeContext,
    Domain,
    EffectAnswer,
    ExpressionError,
    Invocation,
    Scope,
    apply,
    compile_expression,
    compute,
    genesis,
    load_schema,
    unchecked_schema,
)
from world.core.expressions.scope import EvaluationContext
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import read_json
from world.model.identity import catalog_hash, content_id, intent_key, schema_hash, snapshot_hash, world_id
from world.model.immutable_json import freeze
from world.model.patch import Patch
from world.model.snapshot import Snapshot

MARK: Final = "$vec"
"""The one key of an object that represents a number JSON cannot carry."""

MAX_SAFE: Final = 2**53
"""Largest integer that is read as an integer; beyond it numbers are doubles."""

NOT_ADMITTED: Final = frozenset({"UNKNOWN_ACTION", "ACTION_UNAVAILABLE", "INVALID_INPUT"})
"""Codes of the errors by which an intent is turned away before its flow runs; they name no node of the flow."""

MAX_ITERATIONS: Final = 10
"""Rounds of effects of one intent, where a case names no other number."""

Given = Mapping[str, Any]


# Reading and writing


def read_case(text: str | bytes) -> Any:
    """Read one JSON value with marked numbers, strictly.

    Raises:
        RefusedError: ``MALFORMED_JSON``, ``NOT_CANONICAL``; ``INVALID_VALUE`` for a mark that is no number.
    """
    return unmarked(read_json(text))


def read_expression_case(text: str | bytes) -> Any:
    """Read one JSON value with marked numbers, its integers beyond 2^53 as doubles.

    Raises:
        RefusedError: ``MALFORMED_JSON``; ``INVALID_VALUE`` for a mark that is no number.
    """
    try:
        whole = text if isinstance(text, str) else bytes(text).decode()
        return unmarked(json.loads(whole, parse_int=_as_double, parse_constant=_refused_constant))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError):
        return read_case(text)  # which says what is wrong, and where


def _as_double(digits: str) -> int | float:
    if len(digits) > 400:
        raise RefusedError(ErrorCode.MALFORMED_JSON, f"The integer {digits[:20]}... has {len(digits)} digits.")
    whole = int(digits)
    try:
        return whole if abs(whole) <= MAX_SAFE else float(digits)
    except OverflowError:
        raise RefusedError(ErrorCode.MALFORMED_JSON, f"The integer {digits[:20]}... is beyond all doubles.") from None


def _refused_constant(name: str) -> float:
    raise RefusedError(ErrorCode.MALFORMED_JSON, f'{name} is no JSON; write {{"{MARK}": "{name}"}}.')


def unmarked(value: Any) -> Any:
    """Return a value with its marks replaced by the numbers they represent.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a mark that is no number.
    """
    if isinstance(value, dict):
        if value.keys() == {MARK}:
            return _number(value[MARK])
        return {key: unmarked(item) for key, item in value.items()}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def _number(written: Any) -> float:
    try:
        return float(written)
    except (TypeError, ValueError):
        raise RefusedError(ErrorCode.INVALID_VALUE, f'{{"{MARK}": {written!r:.40}}} is no number.') from None


def marked(value: Any) -> Any:
    """Return a value with the numbers that JSON cannot carry written as marks."""
    if isinstance(value, dict):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [marked(item) for item in value]
    if isinstance(value, float) and (not math.isfinite(value) or (value == 0 and math.copysign(1, value) < 0)):
        names = {math.inf: "Infinity", -math.inf: "-Infinity", 0.0: "-0"}
        return {MARK: names.get(value, "NaN")}
    return value


# Identity


def intent_key_of(given: Given) -> dict[str, str]:
    """From ``{schemaHash, body: {type, input?, scopeProposal?}}`` to ``{intentKey}``."""
    body = given["body"]
    key = intent_key(given["schemaHash"], body["type"], body.get("input"), body.get("scopeProposal"))
    return {"intentKey": key}


def catalog_hash_of(given: Given) -> dict[str, str]:
    """From ``{schemaHash, actions, pruning?}`` to ``{catalogHash}``."""
    return {"catalogHash": catalog_hash(given["schemaHash"], given["actions"], given.get("pruning"))}


def snapshot_hash_of(given: Given) -> dict[str, str]:
    """From ``{schemaHash, snapshot}`` to ``{snapshotHash, contentId}``."""
    hashed = snapshot_hash(given["snapshot"])
    return {"snapshotHash": hashed, "contentId": content_id(given["schemaHash"], hashed)}


def world_id_of(given: Given) -> dict[str, str]:
    """From ``{schemaHash, snapshotHash | snapshot, parentWorldId}`` to ``{worldId, contentId, snapshotHash}``."""
    hashed = given["snapshotHash"] if "snapshotHash" in given else snapshot_hash(given["snapshot"])
    schema = given["schemaHash"]
    return {
        "worldId": world_id(schema, hashed, given.get("parentWorldId")),
        "contentId": content_id(schema, hashed),
        "snapshotHash": hashed,
    }


IDENTITIES: Final[Mapping[str, Callable[[Given], dict[str, str]]]] = {
    "intent-key": intent_key_of,
    "catalog": catalog_hash_of,
    "snapshot": snapshot_hash_of,
    "world": world_id_of,
}


# Expressions

_SCOPE_FIELDS: Final = {
    "system": "system",
    "meta": "meta",
}
_CONTEXT_FIELDS: Final = {
    "intentId": "intent_id",
    "currentAction": "action_id",
    "now": "now",
    "randomSeed": "seed",
}
"""What a case may say of an expression's surroundings beside its data: the word there, and here."""


_IS_OF_TYPE: Final[Mapping[str, Callable[[Any], bool]]] = {
    "an object": lambda value: isinstance(value, dict),
    "a number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "a string": lambda value: isinstance(value, str),
    "an array": lambda value: isinstance(value, list),
    "a boolean": lambda value: isinstance(value, bool),
}

_TYPES: Final[Mapping[str, str]] = {
    "data": "an object",
    "computed": "an object",
    "system": "an object",
    "meta": "an object",
    "intentId": "a string",
    "currentAction": "a string",
    "now": "a number",
    "randomSeed": "a string",
}
"""What a member of an expression's surroundings must be; ``input`` may be any value."""

_MAY_BE_NULL: Final = frozenset({"system", "meta", "intentId", "currentAction"})


def check_surroundings(given: Given) -> None:
    """Refuse surroundings of an expression that are not of the type they must have.

    Args:
        given: a case or a context: ``data``, ``computed``, ``system`` and ``meta`` are objects, ``intentId``,
            ``currentAction`` and ``randomSeed`` strings, ``now`` a number.

    Raises:
        RefusedError: ``INVALID_VALUE`` that names the member and its type.
    """
    for name, wanted in _TYPES.items():
        if name not in given or _IS_OF_TYPE[wanted](given[name]) or (given[name] is None and name in _MAY_BE_NULL):
            continue
        kind = next((kind for kind, is_one in _IS_OF_TYPE.items() if is_one(given[name])), "null")
        raise RefusedError(ErrorCode.INVALID_VALUE, f'"{name}" must be {wanted}, not {kind}.', member=name)


def evaluation_of(given: Given, context: Given) -> dict[str, Any]:
    """From ``{expr, data?, computed?, input?, phase?, ...}`` to ``{ok, value}`` or ``{ok, code, message}``.

    Args:
        given: the case; ``phase`` is ``computed`` for the expression of a computed value.
        context: what holds where the case says nothing: ``data``, ``computed``, ``input``, ``system``, ``meta``,
            ``intentId``, ``currentAction``, ``now`` (ms), ``randomSeed``.

    Raises:
        RefusedError: ``INVALID_VALUE``; see ``check_surroundings``.
    """
    rendered = {**context, **given}
    check_surroundings(rendered)
    scope = Scope(
        freeze(rendered.get("data", {})),
        computed=freeze(rendered.get("computed", {})),
        input=freeze(rendered.get("input")),
        context=EvaluationContext(
            **{name: rendered[wire] for wire, name in _CONTEXT_FIELDS.items() if wire in rendered}
        ),
        **{name: rendered[wire] for wire, name in _SCOPE_FIELDS.items() if wire in rendered},
    )
    try:
        evaluate = compile_expression(given["expr"], computed=given.get("phase") == "computed")
        return {"ok": True, "value": marked(evaluate(scope))}
    except ExpressionError as error:
        return {"ok": False, "code": error.code, "message": error.message}


# Flows


def outcome(snapshot: Snapshot) -> dict[str, Any]:
    """Return a snapshot as in the vectors; the ``$`` namespaces are no part of a domain's data."""
    error = snapshot.system.last_error
    return {
        "data": {key: value for key, value in snapshot.data.items() if not key.startswith("$")},
        "computed": dict(snapshot.computed),
        "lastError": None if error is None else {key: error.to_wire()[key] for key in ("code", "source")},
        "pending": [{"type": wait.type, "params": wait.params} for wait in snapshot.system.pending_requirements],
    }


def run_compute(given: Given) -> dict[str, Any]:
    """Compute one intent on a snapshot; ``patches`` is None where the flow did not run."""
    domain = Domain.of_schema(unchecked_schema(given["schema"]))
    done = compute(
        domain,
        Snapshot.from_wire(given["snapshot"]),
        _invocation(given["intent"]),
        _context(given["context"]),
    )
    patches = [patch.to_wire() for patch in done.patches] if _has_run(done) else None
    return {"status": done.status, "patches": patches, "terminatedBy": None} | outcome(done.snapshot)


def _has_run(done: Computation) -> bool:
    return done.error is None or bool(done.error.node_path) or done.error.code not in NOT_ADMITTED


def run_apply(given: Given) -> dict[str, Any]:
    """Apply patches to a snapshot."""
    domain = Domain.of_schema(unchecked_schema(given["schema"]))
    patches = [Patch.from_wire(patch) for patch in given["patches"]]
    return outcome(apply(domain, Snapshot.from_wire(given["snapshot"]), patches, _context(given["context"])))


def run_validate(given: Given) -> dict[str, Any]:
    """Validate a schema, and give the codes of its faults."""
    try:
        load_schema(given["schema"])
    except RefusedError as refused:
        faults = refused.details.get("faults", ())
        return {"valid": False, "codes": sorted({fault["code"] for fault in faults}) or [refused.code]}
    return {"valid": True, "codes": []}


def run_schema_hash(given: Given) -> dict[str, Any]:
    """Hash a schema."""
    return {"schemaHash": schema_hash(given["schema"])}


def run_host(given: Given) -> dict[str, Any]:
    """Run intents one after the other, answering each effect as the case says."""
    domain = Domain.of_schema(unchecked_schema(given["schema"]))
    snapshot = genesis(domain, ComputeContext(given["now"], "genesis"), given["data"])
    results: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    for intent in given["intents"]:
        status, snapshot = _run_intent(domain, snapshot, intent, given, calls)
        results.append({"status": status} | outcome(snapshot))
    return {"results": results, "effectCalls": calls}


def _run_intent(
    domain: Domain, snapshot: Snapshot, intent: Given, given: Given, calls: list[dict[str, Any]]
) -> tuple[str, Snapshot]:
    context = ComputeContext(given["now"], intent["intentId"])
    journal: dict[str, EffectAnswer] = {}
    done = compute(domain, snapshot, _invocation(intent), context, journal)
    for _ in range(given.get("maxIterations", MAX_ITERATIONS) - 1):
        if done.status != "pending":
            break
        for requirement in done.requirements:
            calls.append({"type": requirement.type, "params": requirement.params})
            answer = given["effects"][requirement.type]
            journal[requirement.id] = EffectAnswer(patches=tuple(map(Patch.from_wire, answer["patches"])))
        done = compute(domain, snapshot, _invocation(intent), context, journal)
    return done.status, done.snapshot


def _context(given: Given) -> ComputeContext:
    return ComputeContext(given["now"], given["randomSeed"])


def _invocation(intent: Given) -> Invocation:
    return Invocation(intent["type"], intent.get("input"), intent["intentId"])


FLOWS: Final[Mapping[str, Callable[[Given], dict[str, Any]]]] = {
    "compute": run_compute,
    "apply": run_apply,
    "validate": run_validate,
    "schemaHash": run_schema_hash,
    "host": run_host,
}


def flow_of(given: Given) -> dict[str, Any]:
    """From the input of a flow vector, ``{op, schema, ...}``, to what comes of it.

    Raises:
        RefusedError: ``INVALID_VALUE`` for an unknown ``op``, and what the schema or the case refuses.
    """
    run = FLOWS.get(given["op"]) if isinstance(given["op"], str) else None
    if run is None:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"There is no op {given['op']!r:.40}; there are {', '.join(FLOWS)}."
        )
    return run(given)
