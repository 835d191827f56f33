"""Test cases of a policy in a file: actor, intent, state and expected decision.

``rules.toml`` is tested by the cases in ``rules.cases.toml`` beside it. A file is parsed strictly, and all its faults
are reported together, each with its path and line. ``worldprotocol.testing`` converts them to cases for an Authority.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, PlainValidator, ValidationError, model_validator

from authority.policies.policy_text import ParsedText, Place, read_file, read_text
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorKind
from world.model.canonical_json import read_json
from world.model.decision import RuleAnswer
from world.model.member_types import Identifier, Json, JsonObject, Text
from world.model.value import Value, refused_value
from worldprotocol.api.time_parsing import milliseconds, moment_of

MAX_CASES: Final = 10_000
"""Maximum number of cases in one file."""

MAX_TIMES: Final = 1_000_000
"""Maximum number of earlier proposals that one entry of a history represents."""

SUFFIXES: Final = (".toml", ".yaml", ".yml", ".json")
"""Suffixes of the names of case files, after ``.cases``."""

UNRESTRICTED: Final = "unrestricted"
"""Scope of an approval without restriction, in expectations."""

_JSON: Final = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\],]|\n|[^\s{}\[\],:"]+')

DEFAULT_NOW_MS: Final = 1_767_225_600_000
"""Time of a case without a time: the beginning of 2026, in ms since 1970-01-01 UTC."""


def _moment(value: Any) -> int | str:
    if isinstance(value, datetime):
        return milliseconds(value)
    if isinstance(value, str):
        moment_of(value, DEFAULT_NOW_MS)
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise ValueError("a time is a text such as 2026-01-31T12:00:00Z, or a whole number of ms since 1970")


Moment = Annotated[int | str, PlainValidator(_moment)]
"""Time as a text that ``moment_of`` parses, or in ms since 1970-01-01 UTC."""


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Names = Annotated[list[Identifier], BeforeValidator(_listed)]
"""One name or a list of names."""


class ActorEntry(Value):
    """Actor of a case; a text is the id of an agent."""

    id: Identifier
    kind: ActorKind = "agent"
    name: Text | None = None
    meta: JsonObject | None = None


class IntentEntry(Value):
    """Intent of a case; ``scope`` has its proposed patterns."""

    type: Identifier
    input: Json = None
    scope: list[Identifier] | None = None


class BaseEntry(Value):
    """Base state of a case; ``computed`` by names without the prefix, computed by the domain if absent."""

    data: JsonObject = Field(default_factory=dict)
    computed: JsonObject | None = None


class PastEntry(Value):
    """Earlier proposals with equal members; ``times`` is their number."""

    actor: Identifier
    action: Identifier
    input: Json = None
    scope: list[Identifier] | None = None
    intent_key: Identifier | None = None
    decision: Literal["approved", "rejected"] | None = None
    outcome: Literal["completed", "failed"] | None = None
    at: Moment | None = None
    times: Annotated[int, Field(ge=1, le=MAX_TIMES)] = 1

    @model_validator(mode="after")
    def _only_what_was_approved_ends(self) -> Self:
        if self.outcome is not None and self.decision == "rejected":
            raise ValueError("what was rejected was not executed, so it has no outcome")
        return self


class CaseExpectation(Value):
    """Expected result of a case; absent members are not compared.

    ``reject`` is a rejection by a rule or by default; a rejection because a rule failed is ``error``.
    """

    decision: Literal["approve", "reject", "wait", "error"]
    decided_by: Names | None = None
    scope: Annotated[list[Identifier], BeforeValidator(_listed)] | None = None
    asks: Names | None = None
    reason: Text | None = None
    rules: dict[Identifier, RuleAnswer] = Field(default_factory=dict)


def _actor(value: Any) -> Any:
    return {"id": value} if isinstance(value, str) else value


class CaseDefaults(Value):
    """Default members of all cases of a file."""

    actor: Annotated[ActorEntry, BeforeValidator(_actor)] | None = None
    base: BaseEntry | None = None
    manifest: list[JsonObject] | None = None
    history: list[PastEntry] | None = None
    now: Moment | None = None
    branch: Identifier | None = None
    binding: JsonObject | None = None


class CaseEntry(CaseDefaults):
    """One case: actor, intent, base state, history, time, and the expected result."""

    name: Identifier
    intent: IntentEntry
    expected: CaseExpectation | None = None


class TestedEntry(CaseEntry):
    """Case in a file, which must have an expected result."""

    expected: CaseExpectation


class CaseFile(Value):
    """Case file.

    ``policy`` and ``domain`` are references, as in world.toml; relative ones start at the file.
    """

    policy: Identifier | None = None
    domain: Identifier | None = None
    given: CaseDefaults = Field(default_factory=CaseDefaults)
    cases: Annotated[list[TestedEntry], Field(min_length=1, max_length=MAX_CASES)]


class Placed(CaseFile):
    """Parsed case file, with the first line of each case."""

    path: Path
    lines: list[int]


def is_case_file(name: str) -> bool:
    """Return whether a name is that of a case file, such as ``rules.cases.toml``."""
    return any(name.endswith(f".cases{suffix}") for suffix in SUFFIXES)


def read_cases(path: Path) -> Placed:
    """Parse a case file.

    Raises:
        RefusedError: ``NOT_LOADED`` where it cannot be read; ``INVALID_CASES`` with ``details["faults"]``, each
            ``{"path", "message", "line"}``.
    """
    try:
        text = written(read_file(path), path.suffix)
    except RefusedError as refused:
        if refused.code == "NOT_LOADED":
            raise
        found = re.search(r"line (\d+)", refused.message)
        raise _invalid(path, [_fault("$", refused.message, int(found[1]) if found else 1)]) from None
    faults = list(_contradictions(text))
    try:
        file = CaseFile.model_validate(text.data, by_alias=True, by_name=False)
    except ValidationError as error:
        value_faults = refused_value(error, what="file of cases").details["faults"]
        places = [one["loc"] for one in error.errors(include_url=False, include_input=False)]
        faults += [
            _fault(one["path"], one["message"], text.line(place))
            for one, place in zip(value_faults, places, strict=True)
        ]
        raise _invalid(path, sorted(faults, key=lambda fault: int(fault["line"]))) from None
    if faults:
        raise _invalid(path, faults)
    lines = [text.line(("cases", at)) for at in range(len(file.cases))]
    return Placed.model_construct(
        **{name: getattr(file, name) for name in CaseFile.model_fields}, path=path, lines=lines
    )


def written(text: str, suffix: str) -> ParsedText:
    """Parse the text of a case file, with the line of each member.

    Raises:
        RefusedError: ``INVALID_POLICY``, ``MALFORMED_JSON``, ``NOT_CANONICAL`` for invalid TOML, YAML or JSON.
    """
    if suffix != ".json":
        return read_text(text, is_toml=suffix == ".toml")
    return ParsedText(read_json(text), _json_lines(text))


def _json_lines(text: str) -> dict[Place, int]:
    """Return the line of every member of a valid JSON text."""
    lines: dict[Place, int] = {}
    place: list[str | int] = []
    opened, line, is_key = "", 1, False
    for piece in _JSON.findall(text):
        if piece == "\n":
            line += 1
        elif piece in ("}", "]"):
            opened, is_key = opened[:-1], False
            place.pop()
        elif piece == ",":
            is_key = opened[-1] == "{"
            if not is_key:
                place[-1] = int(place[-1]) + 1
        else:
            if is_key:
                place[-1], is_key = json.loads(piece), False
            lines.setdefault(tuple(place), line)
            if piece in ("{", "["):
                opened, is_key = opened + piece, piece == "{"
                place.append(0)
    return lines


def _contradictions(text: ParsedText) -> Iterator[dict[str, Any]]:
    """Yield the contradictions between members; members of a wrong type are skipped."""
    file = _mapping(text.data)
    given_actor = _mapping(file.get("given")).get("actor")
    cases = file.get("cases")
    known: dict[str, int] = {}
    for at, one in enumerate(cases if isinstance(cases, list) else ()):
        place: Place = ("cases", at)
        case = _mapping(one)
        if case and case.get("actor") is None and given_actor is None:
            yield _fault(f"$.cases[{at}]", "it has no actor, and none is given for all cases", text.line(place))
        name = case.get("name")
        if not isinstance(name, str):
            continue
        if name in known:
            words = f"the case $.cases[{known[name]}] is called {name!r:.80}, too"
            yield _fault(f"$.cases[{at}].name", words, text.line((*place, "name")))
        known.setdefault(name, at)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _fault(path: str, message: str, line: int) -> dict[str, Any]:
    return {"path": path, "message": message, "line": line}


def _invalid(path: Path, faults: list[dict[str, Any]]) -> RefusedError:
    words = "; ".join(f"line {fault['line']}, {fault['path']}: {fault['message']}" for fault in faults)
    return RefusedError(
        ErrorCode.INVALID_CASES,
        f"{path.name} is no valid file of cases: {words.rstrip('.')}.",
        faults=faults,
        file=str(path),
    )
