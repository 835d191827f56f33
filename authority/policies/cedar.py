"""Policies in Cedar: permit approves, forbid rejects, each a rule of its own.

The actor is the principal ``Actor::"bot"``, the intent's type the action ``Action::"pay"``, and the branch the resource
``Branch::"main"`` with the base world's data. Cedar ignores an error in one of its policies; here it rejects like every
error in a rule. Only ``authority.policies.loading`` imports this, and only for a ``.cedar`` file: the package
``cedarpy`` is an extra. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, Final, Literal

from authority.bounded_text import MAX_NAME, bounded, is_name
from authority.policies.cedar_names import named_actions, unknown_names
from authority.policies.cedar_values import WHOLE, Conversion, ReadPaths, failed, with_roundings
from authority.policies.opinions import Approve, Opinion, Reject
from authority.policies.policy import MAX_RULES, Policy
from authority.policies.policy_text import invalid_file
from authority.policies.source_hash import RuleSource
from world.errors import RefusedError
from world.extras import missing_extra
from world.model.canonical_json import digest
from world.model.immutable_json import FrozenDict
from world.model.snapshot import SnapshotView
from world.state.ports import Case

LANGUAGE: Final = "cedar"
"""The language of these rules, as their sources name it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|\s+|.', re.DOTALL)
_WHERE: Final = re.compile(r"^error while evaluating policy `[^`]*`: ")

EXACT: Final = "exact"
"""The parameter ``values`` of rules that receive only what they read, and fail where a number would be rounded."""

READ_ONLY: Final = "read"
"""That of rules of earlier releases, for which numbers are rounded; rules without any receive whole cases."""


@dataclass(frozen=True, slots=True)
class CedarRule:
    """One policy of a Cedar file.

    Args:
        name: its ``@id``.
        text: its text in the file.
        effect: permit or forbid.
        reason: its ``@reason``.
        source: the file, the line and the text; its parameters say whether the rule receives only what it reads.
        world: makes the inputs of Cedar from a base world; shared by all policies of a file.
    """

    name: str
    text: str
    effect: Literal["permit", "forbid"]
    reason: str
    source: RuleSource
    world: _Worlds = field(repr=False, compare=False)
    _policies: Any = field(init=False, repr=False, compare=False)
    _reading: ReadPaths = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_policies", _library().PolicySet.from_str(self.text))
        object.__setattr__(self, "_reading", self._reads() if self._reads_only else WHOLE)

    @property
    def _reads_only(self) -> bool:
        return self.source.parameters.get("values") in (EXACT, READ_ONLY)

    def _reads(self) -> ReadPaths:
        (policy,) = json.loads(_library().policies_to_json_str(self.text))["staticPolicies"].values()
        return ReadPaths.of(policy.get("conditions", []))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle only the text; the other process parses it again."""
        return CedarRule, (self.name, self.text, self.effect, self.reason, self.source, self.world)

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions that the policy names."""
        (policy,) = json.loads(_library().policies_to_json_str(self.text))["staticPolicies"].values()
        return tuple(sorted(set(named_actions(policy))))

    @property
    def description(self) -> str:
        """The reason in the file."""
        return self.reason

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the opinion of a satisfied policy, None for others.

        Raises:
            RefusedError: ``CONDITION_FAILED`` where Cedar reports an error, or cannot represent a value of the case.
        """
        seen = self._seen(case)
        result = _library().is_authorized(seen.request, self._policies, seen.entities)
        errors = result.diagnostics.errors
        if errors:
            raise failed(with_roundings(_WHERE.sub("", bounded(errors[0])), seen.rounded))
        if not result.diagnostics.reasons:
            return None
        reason = with_roundings(self.reason, seen.rounded)
        return Approve(reason) if self.effect == "permit" else Reject(reason)

    @property
    def normalised_source(self) -> FrozenDict:
        """The policy without its comments and layout, as the hash of its JSON form."""
        values = self.source.parameters.get("values")
        return FrozenDict({"source": self.source.source_hash, "values": values})

    def _seen(self, case: Case) -> _Seen:
        rounds = self.source.parameters.get("values") == READ_ONLY
        return self.world.seen(case, self.name if self._reads_only else None, self._reading, rounds=rounds)

    def roundings(self, case: Case) -> tuple[str, ...]:
        """Return a sentence for each number that was rounded for the policy.

        Raises:
            RefusedError: ``CONDITION_FAILED`` where Cedar cannot represent a value that is read.
        """
        return self._seen(case).rounded

    def values_read(self, case: Case) -> dict[str, Any]:
        """Return the attributes of a case that the policy reads, if present."""
        roots = {"context": _context(case), "principal": _attributes(case), "resource": _resource(case)}
        values: dict[str, Any] = {}
        for path in sorted(self._reads().paths()):
            value: Any = roots
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                values[".".join(path)] = value
        return values


@dataclass(frozen=True, slots=True)
class _Seen:
    """Input of Cedar for one case, and the numbers that were rounded."""

    request: dict[str, Any]
    entities: Any
    rounded: tuple[str, ...]


@dataclass(slots=True)
class _Worlds:
    """Inputs of Cedar with a cache of the last case and the last base world.

    The keys are names of rules; rules that receive whole cases share the key None.
    """

    _last: tuple[SnapshotView, str, str, dict[str | None, tuple[Any, tuple[str, ...]]]] | None = None
    _of_case: tuple[Case, dict[str | None, _Seen]] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Worlds, ()

    def seen(self, case: Case, rule: str | None, reading: ReadPaths, *, rounds: bool) -> _Seen:
        """Return the request and its entities: the branch with its data, and the actor.

        Raises:
            RefusedError: ``CONDITION_FAILED`` where Cedar cannot represent a value that is read.
        """
        if self._of_case is None or self._of_case[0] is not case:
            self._of_case = (case, {})
        known = self._of_case[1]
        if rule not in known:
            base, rounded = self._base(case, rule, reading, rounds=rounds)
            conversion = Conversion(rounds)
            entities = base.with_added_json_str(json.dumps([_actor(case, conversion, reading)]))
            request = _request(case, conversion, reading)
            known[rule] = _Seen(request, entities, (*conversion.rounded, *rounded))
        return known[rule]

    def _base(self, case: Case, rule: str | None, reading: ReadPaths, *, rounds: bool) -> tuple[Any, tuple[str, ...]]:
        last = self._last
        if last is None or last[0] is not case.view or last[1:3] != (case.branch, case.base_world):
            last = self._last = (case.view, case.branch, case.base_world, {})
        if rule not in last[3]:
            conversion = Conversion(rounds)
            attributes = conversion.record(_resource(case), "resource", _part(reading, "resource"))
            branch = {"uid": _uid("Branch", case.branch), "attrs": attributes, "parents": []}
            made = _library().Entities.from_json_str(json.dumps([branch]))
            last[3][rule] = (made, tuple(conversion.rounded))
        return last[3][rule]


def _part(reading: ReadPaths, root: str) -> ReadPaths:
    """Return the read paths of the context, the principal or the resource."""
    return WHOLE if reading.is_whole else reading.fields.get(root, ReadPaths())


def policy_from_cedar(text: str, file: str, *, values: Mapping[str, str] | None = None) -> Policy:
    """Return the policy of a Cedar file, named after the file.

    Args:
        text: Cedar policies, each with an ``@id``.
        file: the file's name; without ``.cedar`` it is the policy's name.
        values: the recorded parameters ``values`` of rules by their ids, for a policy that is reconstructed from its
            adoption; None for a file, whose rules receive only the values that they read.

    Raises:
        RefusedError: ``NOT_LOADED`` where ``cedarpy`` is not installed; ``INVALID_POLICY`` with ``details["faults"]``,
            each ``{"path", "message", "line"}``.
    """
    _library()
    world = _Worlds()
    rules: list[CedarRule] = []
    faults: list[dict[str, Any]] = []
    lines: dict[str, int] = {}
    for at, (line, statement) in enumerate(_statements(text)):
        try:
            made = _rule(statement, file, line, world, values)
            if made.name in lines:
                raise _InvalidPolicyError(f"the policy in line {lines[made.name]} has the @id {made.name}, too")
            lines[made.name] = line
            rules.append(made)
        except _InvalidPolicyError as wrong:
            faults.append({"path": f"$[{at}]", "message": str(wrong), "line": line})
    if not rules and not faults:
        faults.append({"path": "$", "message": "it holds no policy", "line": 1})
    if len(rules) > MAX_RULES:
        faults.append({"path": "$", "message": f"it holds more than {MAX_RULES} policies", "line": 1})
    if faults:
        raise invalid_file(file, faults)
    return Policy(PurePath(file).stem, rules)


class _InvalidPolicyError(Exception):
    """Raised for a Cedar policy that cannot be a rule."""


def _rule(statement: str, file: str, line: int, world: _Worlds, values: Mapping[str, str] | None) -> CedarRule:
    library = _library()
    try:
        parsed = json.loads(library.policies_to_json_str(statement))
    except ValueError as error:
        raise _InvalidPolicyError(" ".join(str(error).split())) from None
    if parsed.get("templates") or len(parsed["staticPolicies"]) != 1:
        raise _InvalidPolicyError("a template has no values (?principal, ?resource) here; write the policy out")
    policy = next(iter(parsed["staticPolicies"].values()))
    annotations = policy.get("annotations", {})
    name = annotations.get("id")
    if not is_name(name):
        raise _InvalidPolicyError(f'it has no @id("...") of up to {MAX_NAME} letters, digits and _ . : / -')
    try:
        source_hash = digest(policy)
    except RefusedError as refused:  # Cedar accepts whole numbers that JSON cannot represent exactly
        raise _InvalidPolicyError(refused.message) from None
    if values is None and (unknown := unknown_names(policy)):
        raise _InvalidPolicyError("; ".join(unknown))
    given = EXACT if values is None else values.get(name)
    if given not in (None, READ_ONLY, EXACT):
        raise _InvalidPolicyError(f"its parameter values is {given!r:.40}, which this version does not support")
    parameters = {"policy": statement} if given is None else {"policy": statement, "values": given}
    return CedarRule(
        name=name,
        text=statement,
        effect=policy["effect"],
        reason=annotations.get("reason") or "",
        source=RuleSource(
            language=LANGUAGE,
            module=file,
            qualname=name,
            line=line,
            source_hash=source_hash,
            parameters=FrozenDict(parameters),
        ),
        world=world,
    )


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield every policy with its first line, without comments before it."""
    begin, line, first = -1, 1, 1
    for match in _TOKEN.finditer(text):
        piece = match.group()
        is_said = not piece.isspace() and not piece.startswith("//")
        if is_said and begin < 0:
            begin, first = match.start(), line
        if piece == ";" and begin >= 0:
            yield first, text[begin : match.end()]
            begin = -1
        line += piece.count("\n")
    if begin >= 0:
        yield first, text[begin:]


def _resource(case: Case) -> dict[str, Any]:
    computed = {name.removeprefix("computed."): value for name, value in case.view.computed.items()}
    return {"data": case.view.data, "computed": computed, "world": case.base_world}


def _context(case: Case) -> dict[str, Any]:
    scope = case.intent.body.scope_proposal
    return {
        "input": case.intent.body.input,
        "key": case.intent.intent_key,
        "scope": None if scope is None or scope.allowed_paths is None else list(scope.allowed_paths),
        "manifest": [] if case.manifest is None else case.manifest["scope"],
        "nowMs": case.submitted_at,
        "earlierAttempts": case.earlier_attempts,
    }


def _request(case: Case, conversion: Conversion, reading: ReadPaths) -> dict[str, Any]:
    moment = _EPOCH + timedelta(milliseconds=case.submitted_at)
    at = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1_000:03}Z"
    now = {"__extn": {"fn": "datetime", "arg": at}}
    return {
        "principal": _uid("Actor", case.actor.actor_id),
        "action": _uid("Action", case.intent.body.type),
        "resource": _uid("Branch", case.branch),
        "context": {**conversion.record(_context(case), "context", _part(reading, "context")), "now": now},
    }


def _attributes(case: Case) -> dict[str, Any]:
    return {"kind": case.actor.kind, "name": case.actor.name, "meta": case.actor.meta or {}}


def _actor(case: Case, conversion: Conversion, reading: ReadPaths) -> dict[str, Any]:
    attributes = conversion.record(_attributes(case), "principal", _part(reading, "principal"))
    return {"uid": _uid("Actor", case.actor.actor_id), "attrs": attributes, "parents": []}


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "id": name}


def _library() -> Any:
    try:
        import cedarpy
    except ImportError:
        raise missing_extra("Policies in Cedar", "cedarpy", "cedar") from None
    return cedarpy
