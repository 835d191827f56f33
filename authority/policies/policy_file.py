"""Policy files: rules in TOML or YAML, with conditions in CEL.

A file is read strictly and as a whole: all its faults are reported together, each with its path and line, and a file
with a fault is rejected. The result is an ordinary ``Policy``; its hash covers the content of the file and the lines of
its rules, not its comments. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from authority.bounded_text import MAX_NAME, MAX_WORDS, is_name
from authority.cel.case_values import value_at
from authority.cel.condition_reader import Read, read_path
from authority.cel.conditions import Condition, read_when
from authority.cel.tokens import ConditionError, has_comment, tokens_of
from authority.evaluations import EVALUATION
from authority.policies.opinions import Approve, Escalate, Narrow, Opinion, Reject, Vote
from authority.policies.policy import MAX_RULES, Policy
from authority.policies.policy_text import ParsedText, Place, invalid_file, read_text
from authority.policies.source_hash import RuleSource
from world.errors import RefusedError
from world.model.canonical_json import canonical_text, digest
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentScope
from world.model.scope_patterns import parse_pattern
from world.state.ports import Case

MAX_PATTERNS: Final = 256
"""Maximum length of one list of a rule: actions, actors, patterns of a scope."""

MAX_SHOWN: Final = 200
"""Maximum length of one value in a reason, in characters."""

LANGUAGE: Final = "cel"
"""The language of rules in files, as their sources name it."""

Verdict = Literal["approve", "reject", "narrow", "escalate"]
Line = Annotated[str, Field(min_length=1, max_length=512)]

_HIDING: Final = (
    "its lines are joined into one, in which a comment (//) hides what follows; keep the lines (in YAML with |, in "
    "TOML without a backslash at their ends), or leave the comment out"
)
_QUOTED: Final = re.compile(r"\{\{|\}\}|\{(?P<path>[^{}]*)\}|(?P<lone>[{}])")
_KINDS: Final[dict[str, type[Approve] | type[Reject]]] = {"approve": Approve, "reject": Reject}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, hide_input_in_errors=True)


def _vote(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Report one fault for a value that matches no variant of the field."""
    try:
        return handler(value)
    except ValidationError:
        raise PydanticCustomError("vote", "Input should be 'unanimous', 'majority' or a number of approvals") from None


def _said(value: Any) -> Any:
    """Refuse a member that is written and says nothing: it would be read as if it were left out."""
    if value is None:
        raise PydanticCustomError("null", "it has no value; write one, or leave the member out")
    if isinstance(value, (list, str)) and not value:
        raise PydanticCustomError("empty", "it is empty and would match everything; name something, or leave it out")
    return value


_Lines = Annotated[list[Line], BeforeValidator(_said)]


class RuleEntry(_Strict):
    """One rule of a file."""

    id: str = Field(max_length=MAX_NAME)
    verdict: Verdict
    when: Annotated[str | None, BeforeValidator(_said)] = None
    actions: _Lines = Field(default_factory=list, max_length=MAX_PATTERNS)
    actors: _Lines = Field(default_factory=list, max_length=MAX_PATTERNS)
    scope: _Lines = Field(default_factory=list, max_length=MAX_PATTERNS)
    to: _Lines = Field(default_factory=list)
    vote: Annotated[Vote | None, WrapValidator(_vote), BeforeValidator(_said)] = None
    reason: str = Field(default="", max_length=MAX_WORDS)

    def content(self) -> FrozenDict:
        """Return the rule as JSON without its empty members."""
        content = freeze(self.model_dump(exclude={"id"}))
        return FrozenDict({name: value for name, value in content.items() if value not in (None, "", [])})


class PolicyEntry(_Strict):
    """A policy file; the only combination is ``strictest``."""

    name: str
    version: Annotated[str | None, BeforeValidator(_said)] = None
    combination: Literal["strictest"] = "strictest"
    rules: list[RuleEntry] = Field(min_length=1, max_length=MAX_RULES)


@dataclass(frozen=True, slots=True)
class Reason:
    """The reason template of a rule; ``{intent.input.amount}`` inserts a value.

    Args:
        parts: literal texts and reads of values.
    """

    parts: tuple[str | Read, ...]

    def fill(self, case: Case) -> str:
        """Return the reason for a case; a missing value is shown as ``?``."""
        return "".join(
            part if isinstance(part, str) else _shown(value_at(part.path, case, _NOTHING)) for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class FileRule:
    """A rule of a policy file.

    Args:
        name: the rule's id.
        entry: the rule in the file.
        source: the file, the line and the content.
        condition: the condition; None is always true.
        reason: its reason template.
    """

    name: str
    entry: RuleEntry
    source: RuleSource
    condition: Condition | None
    reason: Reason
    _scope: IntentScope | None = field(init=False, repr=False, compare=False)
    _fixed: Opinion | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        scope = IntentScope.read({"allowedPaths": self.entry.scope}) if self.entry.scope else None
        object.__setattr__(self, "_scope", scope)
        words = [part for part in self.reason.parts if isinstance(part, str)]
        fixed = self._opinion("".join(words)) if len(words) == len(self.reason.parts) else None
        object.__setattr__(self, "_fixed", fixed)

    @property
    def description(self) -> str:
        """The reason template as text."""
        return self.entry.reason

    @property
    def normalised_source(self) -> FrozenDict:
        """The content of the rule, its condition without comments and white space between tokens."""
        content = self.entry.content()
        if self.entry.when is None:
            return content
        return content.with_item("when", " ".join(token.text for token in tokens_of(self.entry.when)))

    def evaluated_by(self, evaluation: int) -> FileRule:
        """Return the rule with its condition under another evaluation."""
        if self.condition is None or self.condition.evaluation == evaluation:
            return self
        return replace(self, condition=read_when(self.condition.text, evaluation))

    def is_for(self, case: Case) -> bool:
        """Return whether the rule applies to the action and the actor of a case."""
        actions, actors = self.entry.actions, self.entry.actors
        return (not actions or any(fits(pattern, case.intent.body.type) for pattern in actions)) and (
            not actors or any(fits(pattern, case.actor.actor_id) for pattern in actors)
        )

    def __call__(self, case: Case, /) -> Opinion | None:
        """Return the rule's opinion, None where it does not apply or is false.

        Raises:
            RefusedError: ``CONDITION_FAILED`` where the condition fails.
        """
        if not self.is_for(case) or (self.condition is not None and not self.condition.holds(case)):
            return None
        return self._opinion(self.reason.fill(case)) if self._fixed is None else self._fixed

    def _opinion(self, words: str) -> Opinion:
        if self._scope is not None:
            return Narrow(self._scope, words)
        if self.entry.verdict == "escalate":
            return Escalate(self.entry.to, words, vote=self.entry.vote)
        return _KINDS[self.entry.verdict](words)


def policy_from_text(text: str, file: str) -> Policy:
    """Read a policy from a text.

    Args:
        text: TOML or YAML.
        file: the file's name, whose suffix decides the format.

    Raises:
        RefusedError: ``INVALID_POLICY`` with ``details["faults"]``.
    """
    try:
        written = read_text(text, is_toml=file.lower().endswith(".toml"))
    except RefusedError as refused:
        raise invalid_file(file, [_fault("$", refused.message, _line_in(refused.message))]) from None
    return policy_from_written(written, file)


def policy_from_written(written: ParsedText, file: str, *, evaluation: int = EVALUATION) -> Policy:
    """Return the policy of a parsed file.

    Args:
        written: the data and its lines.
        file: the file's name.
        evaluation: of its conditions; an earlier one for a policy that is reconstructed from its adoption.

    Raises:
        RefusedError: ``INVALID_POLICY`` with ``details["faults"]``.
    """
    try:
        entry = PolicyEntry.model_validate(written.data)
    except ValidationError as error:
        raise invalid_file(file, list(_shape_faults(error, written))) from None
    faults = [*_name_faults(entry, written)]
    rules: list[FileRule] = []
    for at, one in enumerate(entry.rules):
        made = _made(one, ("rules", at), written, file, evaluation)
        if isinstance(made, FileRule):
            rules.append(made)
        else:
            faults += made
    if faults:
        raise invalid_file(file, sorted(faults, key=lambda fault: int(fault["line"])))
    return Policy(entry.name, rules, version=entry.version)


def fits(pattern: str, text: str) -> bool:
    """Return whether a text matches a pattern, in which ``*`` is any text."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == text
    *middle, last = rest
    at, end = len(first), len(text) - len(last)
    if at > end or not text.startswith(first) or not text.endswith(last):
        return False
    for part in middle:
        place = text.find(part, at, end)
        if place < 0:
            return False
        at = place + len(part)
    return True


def _made(
    entry: RuleEntry, place: Place, written: ParsedText, file: str, evaluation: int
) -> FileRule | list[dict[str, Any]]:
    """Return a rule, or all its faults."""
    faults: list[dict[str, Any]] = []

    def fault(name: str, words: str) -> None:
        faults.append(_fault(_shown_place((*place, name)), words, written.line((*place, name))))

    for name, words in _wrong_parts(entry):
        fault(name, words)
    condition = None
    if entry.when is not None:
        try:
            if entry.when in written.joined and has_comment(entry.when):
                raise ConditionError(_HIDING)
            condition = read_when(entry.when, evaluation)
        except ConditionError as wrong:
            fault("when", str(wrong))
    reason = Reason(())
    try:
        reason = read_reason(entry.reason)
    except ConditionError as wrong:
        fault("reason", str(wrong))
    if faults:
        return faults
    content = entry.content()
    source = RuleSource(
        language=LANGUAGE,
        module=file,
        qualname=entry.id,
        line=written.line(place),
        source_hash=digest({"id": entry.id, **content}),
        parameters=content,
    )
    return FileRule(entry.id, entry, source, condition, reason)


def read_reason(text: str) -> Reason:
    """Return a reason template.

    Raises:
        ConditionError: for a single bracket, and for an invalid path.
    """
    parts: list[str | Read] = []
    end = 0
    for match in _QUOTED.finditer(text):
        parts.append(text[end : match.start()])
        end = match.end()
        if match["lone"] is not None:
            raise ConditionError(f"it has a single {match['lone']}; write {match['lone'] * 2} for the character itself")
        parts.append(match.group()[0] if match["path"] is None else read_path(match["path"].strip()))
    return Reason((*parts, text[end:]))


def _wrong_parts(entry: RuleEntry) -> Iterator[tuple[str, str]]:
    """Yield the faults of a rule's parts, except condition and reason."""
    if not is_name(entry.id):
        yield "id", f"{entry.id!r:.80} cannot name a rule: take up to {MAX_NAME} letters, digits and _ . : / -"
    if (entry.verdict == "narrow") != bool(entry.scope):
        yield "scope", "a rule that narrows names the patterns that remain; no other rule does"
    if entry.to and entry.verdict != "escalate":
        yield "to", "only a rule that escalates names people"
    if entry.vote is not None and entry.verdict != "escalate":
        yield "vote", "only a rule that escalates has a vote"
    for name, check in (("scope", _check_scope), ("to", Escalate), ("id", freeze), ("reason", freeze)):
        try:
            check(getattr(entry, name))
        except RefusedError as refused:
            yield name, refused.message
    if entry.vote is not None and entry.verdict == "escalate":
        try:
            Escalate(entry.to, vote=entry.vote)
        except RefusedError as refused:
            yield "vote", refused.message
    for name in ("actions", "actors"):
        if "" in getattr(entry, name):
            yield name, "a pattern has at least one character"


def _check_scope(patterns: list[str]) -> None:
    for pattern in patterns:
        parse_pattern(pattern)
    if patterns:
        Narrow(patterns)


def _name_faults(entry: PolicyEntry, written: ParsedText) -> Iterator[dict[str, Any]]:
    if not is_name(entry.name):
        words = f"{entry.name!r:.80} cannot name a policy: take up to {MAX_NAME} letters, digits and _ . : / -"
        yield _fault("$.name", words, written.line(("name",)))
    known: dict[str, int] = {}
    for at, one in enumerate(entry.rules):
        if one.id in known:
            words = f"the rule $.rules[{known[one.id]}] has the id {one.id!r:.80}, too"
            yield _fault(f"$.rules[{at}].id", words, written.line(("rules", at, "id")))
        known.setdefault(one.id, at)


def _shape_faults(error: ValidationError, written: ParsedText) -> Iterator[dict[str, Any]]:
    for fault in error.errors(include_url=False, include_input=False):
        place: Place = fault["loc"]
        yield _fault(_shown_place(place), fault["msg"], written.line(place))


def _fault(path: str, message: str, line: int) -> dict[str, Any]:
    return {"path": path, "message": message, "line": line}


def _line_in(message: str) -> int:
    found = re.search(r"line (\d+)", message)
    return int(found[1]) if found else 1


def _shown_place(place: Place) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)


_NOTHING: Final = object()


def _shown(value: Any) -> str:
    if value is _NOTHING:
        return "?"
    if isinstance(value, str):
        text = value
    elif isinstance(value, datetime):
        text = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    else:
        text = canonical_text(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 1]}…"
