"""Policies in Cedar: permit approves, forbid rejects, each a rule of its own.

Who acts is the principal ``Actor::"bot"``, what is wanted the action ``Action::"pay"``, and where the resource
``Branch::"main"`` with the base world's data. What Cedar would pass over, an error in one of its policies, refuses
here like every error in a rule. Only ``authority.loading`` imports this, and only where a ``.cedar`` file is named: the
package ``cedarpy`` is an extra. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Any, Final, Literal

from authority.opinions import Approve, Opinion, Reject
from authority.policy import MAX_RULES, Policy
from authority.policy_text import invalid_file
from authority.source import RuleSource
from authority.words import MAX_NAME, bounded, is_name
from world.canonical import digest
from world.errors import Refused
from world.frozen import FrozenDict
from world.ports import Case
from world.snapshot import SnapshotView

LANGUAGE: Final = "cedar"
"""The language of these rules, as their sources name it."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TOKEN: Final = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|\s+|.', re.DOTALL)
_WHERE: Final = re.compile(r"^error while evaluating policy `[^`]*`: ")
_RESERVED: Final = frozenset({"__entity", "__extn", "__expr"})
_DECIMALS: Final = 4
_MAX_DECIMAL: Final = 922_337_203_685_477


@dataclass(frozen=True, slots=True)
class CedarRule:
    """One policy of a Cedar file.

    Args:
        name: its ``@id``.
        text: as it stands in the file.
        effect: permit or forbid.
        reason: its ``@reason``.
        source: the file, the line and the text.
        world: makes what Cedar sees of a base world; shared by all policies of a file.
    """

    name: str
    text: str
    effect: Literal["permit", "forbid"]
    reason: str
    source: RuleSource
    world: _Worlds = field(repr=False, compare=False)
    _policies: Any = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_policies", _library().PolicySet.from_str(self.text))

    def __reduce__(self) -> tuple[Any, ...]:
        """What is parsed does not travel between processes; it is parsed there again."""
        return CedarRule, (self.name, self.text, self.effect, self.reason, self.source, self.world)

    @property
    def description(self) -> str:
        """The words, as they stand in the file."""
        return self.reason

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return approval or rejection where the policy is satisfied, None where it is not.

        Raises:
            Refused: ``CONDITION_FAILED`` where Cedar tells an error, or cannot hold a value of the case.
        """
        request, entities = self.world.seen(case)
        result = _library().is_authorized(request, self._policies, entities)
        errors = result.diagnostics.errors
        if errors:
            raise _failed(_WHERE.sub("", bounded(errors[0])))
        if not result.diagnostics.reasons:
            return None
        return Approve(self.reason) if self.effect == "permit" else Reject(self.reason)

    def values_read(self, case: Case) -> dict[str, Any]:
        """Return the attributes of a case that the policy names, as they are written; missing ones are left out."""
        (told,) = json.loads(_library().policies_to_json_str(self.text))["staticPolicies"].values()
        roots = {"context": _context(case), "principal": _attributes(case), "resource": _resource(case)}
        found: dict[str, Any] = {}
        for path in sorted(set(_paths(told.get("conditions", [])))):
            value: Any = roots
            for name in path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                found[".".join(path)] = value
        return found


def _paths(told: Any) -> Iterator[tuple[str, ...]]:
    """Yield the attributes that a policy names, from the JSON form of its conditions."""
    path = _path(told)
    if path:
        yield path
        return
    inner = told.values() if isinstance(told, dict) else told if isinstance(told, list) else ()
    for one in inner:
        yield from _paths(one)


def _path(told: Any) -> tuple[str, ...]:
    """Return the attribute that a piece of a condition is, nothing where it is none."""
    node = (told.get(".") or told.get("has")) if isinstance(told, dict) else None
    if not isinstance(node, dict):
        return ()
    left, name = node.get("left"), node.get("attr")
    root = left.get("Var") if isinstance(left, dict) else None
    before = (root,) if isinstance(root, str) else _path(left)
    return (*before, name) if before and isinstance(name, str) else ()


@dataclass(slots=True)
class _Worlds:
    """What Cedar sees of cases; the last case and the last base world are kept, for those that come after."""

    _last: tuple[SnapshotView, str, str, Any] | None = None
    _seen: tuple[Case, dict[str, Any], Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _Worlds, ()

    def seen(self, case: Case) -> tuple[dict[str, Any], Any]:
        """Return the request, and the entities that it names: the branch with its data, and the actor."""
        seen = self._seen
        if seen is None or seen[0] is not case:
            entities = self._base(case).with_added_json_str(json.dumps([_actor(case)]))
            seen = self._seen = (case, _request(case), entities)
        return seen[1], seen[2]

    def _base(self, case: Case) -> Any:
        last = self._last
        if last is not None and last[0] is case.view and last[1:3] == (case.branch, case.base_world):
            return last[3]
        branch = {"uid": _uid("Branch", case.branch), "attrs": _record(_resource(case), "resource"), "parents": []}
        made = _library().Entities.from_json_str(json.dumps([branch]))
        self._last = (case.view, case.branch, case.base_world, made)
        return made


def policy_from_cedar(text: str, file: str) -> Policy:
    """Return the policy that a Cedar file holds, named after the file.

    Args:
        text: Cedar policies, each with an ``@id``.
        file: the file's name; without ``.cedar`` it is the policy's name.

    Raises:
        Refused: ``NOT_LOADED`` where ``cedarpy`` is not installed; ``INVALID_POLICY`` with ``details["faults"]``, each
            ``{"path", "message", "line"}``.
    """
    _library()
    world = _Worlds()
    rules: list[CedarRule] = []
    faults: list[dict[str, Any]] = []
    lines: dict[str, int] = {}
    for at, (line, statement) in enumerate(_statements(text)):
        try:
            made = _rule(statement, file, line, world)
            if made.name in lines:
                raise _Wrong(f"the policy in line {lines[made.name]} has the @id {made.name}, too")
            lines[made.name] = line
            rules.append(made)
        except _Wrong as wrong:
            faults.append({"path": f"$[{at}]", "message": str(wrong), "line": line})
    if not rules and not faults:
        faults.append({"path": "$", "message": "it holds no policy", "line": 1})
    if len(rules) > MAX_RULES:
        faults.append({"path": "$", "message": f"it holds more than {MAX_RULES} policies", "line": 1})
    if faults:
        raise invalid_file(file, faults)
    return Policy(PurePath(file).stem, rules)


class _Wrong(Exception):
    """A policy that cannot be a rule."""


def _rule(statement: str, file: str, line: int, world: _Worlds) -> CedarRule:
    library = _library()
    try:
        told = json.loads(library.policies_to_json_str(statement))
    except ValueError as error:
        raise _Wrong(" ".join(str(error).split())) from None
    if told.get("templates") or len(told["staticPolicies"]) != 1:
        raise _Wrong("a template has no meaning here; write the policy out")
    policy = next(iter(told["staticPolicies"].values()))
    annotations = policy.get("annotations", {})
    name = annotations.get("id")
    if not is_name(name):
        raise _Wrong(f'it has no @id("...") of up to {MAX_NAME} letters, digits and _ . : / -')
    try:
        source_hash = digest(policy)
    except Refused as refused:  # Cedar reads whole numbers that no JSON can carry exactly
        raise _Wrong(refused.message) from None
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
            parameters=FrozenDict({"policy": statement}),
        ),
        world=world,
    )


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield every policy with the line on which it begins; comments before it are not part of it."""
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


def _request(case: Case) -> dict[str, Any]:
    moment = _EPOCH + timedelta(milliseconds=case.submitted_at)
    at = f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1_000:03}Z"
    now = {"__extn": {"fn": "datetime", "arg": at}}
    return {
        "principal": _uid("Actor", case.actor.actor_id),
        "action": _uid("Action", case.intent.body.type),
        "resource": _uid("Branch", case.branch),
        "context": {**_record(_context(case), "context"), "now": now},
    }


def _attributes(case: Case) -> dict[str, Any]:
    return {"kind": case.actor.kind, "name": case.actor.name, "meta": case.actor.meta or {}}


def _actor(case: Case) -> dict[str, Any]:
    attributes = _record(_attributes(case), "principal")
    return {"uid": _uid("Actor", case.actor.actor_id), "attrs": attributes, "parents": []}


def _uid(kind: str, name: str) -> dict[str, str]:
    return {"type": kind, "id": name}


def _record(value: Mapping[str, Any], at: str) -> dict[str, Any]:
    """Return an object as a Cedar record; what is null there is not there."""
    for key in value:
        if key in _RESERVED:
            raise _failed(f"{at} has a field {key}, which Cedar takes for something else")
    return {key: _value(one, f"{at}.{key}") for key, one in value.items() if one is not None}


def _value(value: Any, at: str) -> Any:
    if isinstance(value, dict):
        return _record(value, at)
    if isinstance(value, list):
        return [_value(one, f"{at}[{place}]") for place, one in enumerate(value)]
    if value is None:
        raise _failed(f"{at} is null, which a set of Cedar cannot hold")
    return _decimal(value, at) if isinstance(value, float) else value


def _decimal(value: float, at: str) -> dict[str, Any]:
    text = f"{value:.{_DECIMALS}f}"
    if abs(value) >= _MAX_DECIMAL or float(text) != value:
        raise _failed(f"{at} is {value!r}; Cedar holds whole numbers and up to {_DECIMALS} decimals")
    return {"__extn": {"fn": "decimal", "arg": text}}


def _library() -> Any:
    try:
        import cedarpy
    except ImportError:
        raise Refused(
            "NOT_LOADED", "Policies in Cedar need the package cedarpy: pip install 'world-protocol[cedar]'."
        ) from None
    return cedarpy


def _failed(words: str) -> Refused:
    return Refused("CONDITION_FAILED", words)
