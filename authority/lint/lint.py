"""Static checks of a policy: names, constant conditions, rules without effect.

An error is a rule that can never have its declared effect. A warning is a probable mistake. Of rules in Python only the
source is checked. Source: design section 6; CARD-policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import combinations, permutations, takewhile
from typing import ClassVar, Final, Literal, cast, get_args

from authority.lint.facts import OF_WHOLE_NUMBERS, Facts, facts_of
from authority.lint.terms import constant, implies
from authority.people.questions import ANYBODY
from authority.policies.input_conditions import conditions_of
from authority.policies.policy import Policy
from authority.policies.rule_composition import UnsafeApproveAll
from authority.policies.rules import Rule
from authority.scope import is_within
from world.core import DomainSchema
from world.core.declarations.confinement import confinement_of
from world.core.fields import ANY, FieldSpec, field_at
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorKind
from world.model.paths import Segments, parse_path
from world.model.record import Record
from world.model.scope_patterns import parse_pattern

MAX_PAIRS: Final = 20_000
"""Maximum number of pairs of rules that are compared."""

KINDS: Final = get_args(ActorKind)
_PLAIN: Final = frozenset({"string", "number", "boolean", "array", "object"})
"""Types of values of one kind."""

UNCONFINED_APPROVAL: Final = ErrorCode.UNCONFINED_APPROVAL.value
"""Check of rules that approve without confinement what the domain wants confined."""


class LintFinding(Record, frozen=True, omit_defaults=True):
    """One finding.

    Args:
        level: its severity.
        check: the name of the check.
        message: the fault and what to do.
        file: the file of the rule.
        line: the line from 1, None where it has none.
        rule: the rule's name, None for the policy itself.
    """

    level: Literal["error", "warning"]
    check: str
    message: str
    file: str
    line: int | None = None
    rule: str | None = None
    WIRE: ClassVar = "level check file line rule message"


@dataclass(frozen=True, slots=True)
class LintContext:
    """Context of a policy for its checks.

    Args:
        schema: schema of the domain; None skips the checks that need it.
        actors: the kinds of the registered actors by their ids; None skips the checks that need them.
        asks: the actors whom the bindings ask where a rule names none.
    """

    schema: DomainSchema | None = None
    actors: Mapping[str, str] | None = None
    asks: Sequence[str] = field(default=(ANYBODY,))


def lint(policy: Policy, around: LintContext) -> list[LintFinding]:
    """Return the findings of a policy in the order of its rules, errors first."""
    facts = [facts_of(rule) for rule in policy.rules]
    found = [finding for one in facts for finding in sorted(_of_rule(one, around), key=lambda it: it.level)]
    found += [finding for rule in policy.rules for finding in unconfined_approvals(rule, around.schema)]
    found += _between(facts, around)
    found += [
        _finding(facts_of(rule), "warning", "approves-all", "it approves everything: for experiments only")
        for rule in policy.rules
        if isinstance(rule, UnsafeApproveAll)
    ]
    order = {one.name: at for at, one in enumerate(facts)}
    found.sort(key=lambda finding: order.get(finding.rule or "", len(order)))
    if not any(one.effect in (None, "approve", "narrow", "escalate") for one in facts):
        file = facts[0].source.module if facts else policy.name
        words = "no rule approves, narrows or escalates: everything is rejected"
        found.append(LintFinding("warning", "never-approves", words, file))
    return found


def unconfined_approvals(rule: Rule, schema: DomainSchema | None) -> Iterator[LintFinding]:
    """Yield the actions that a rule approves unconfined although the domain declares what states confinement.

    Such an approval asks a person (``authority.bindings.unconfined``). A rule that requires confinement, or compares
    exact texts, has no finding; of a rule in Python, which is not read, nothing is known.

    Args:
        rule: the rule.
        schema: the schema of the domain; None finds nothing.
    """
    facts = facts_of(rule)
    if schema is None or not (facts.effect in ("approve", "narrow") or isinstance(rule, UnsafeApproveAll)):
        return
    conditions, is_pattern = conditions_of(rule), facts.source.language == "cel"
    types = conditions.texts(("intent", "type"))
    for name, action in schema.actions.items():
        declared = confinement_of(action.spec)
        is_for = not facts.actions or any(_fits(one, name, is_pattern=is_pattern) for one in facts.actions)
        if declared is None or not is_for or (types is not None and name not in types):
            continue
        stated = ("intent", "input", declared.stated)
        if conditions.is_true(stated) or conditions.are_exact(declared.exact):
            continue
        members = " and ".join(f"intent.input.{one}" for one in declared.exact)
        words = (
            f"it approves {name} without {'.'.join(stated)}, so a person is asked there; require it, escalate, or "
            f"compare {members} with exact texts"
        )
        yield _finding(facts, "warning", UNCONFINED_APPROVAL, words)


def _finding(facts: Facts, level: Literal["error", "warning"], check: str, message: str) -> LintFinding:
    return LintFinding(level, check, message, facts.source.module, facts.source.line, facts.name)


def _of_rule(facts: Facts, around: LintContext) -> Iterator[LintFinding]:
    for level, check, message in (
        *_conditions(facts),
        *_names(facts, around),
        *_paths(facts, around.schema),
        *_types(facts, around.schema),
        *_people(facts, around),
        *_python(facts),
    ):
        yield _finding(facts, level, check, message)


_Faults = Iterator[tuple[Literal["error", "warning"], str, str]]


def _conditions(facts: Facts) -> _Faults:
    if facts.fails:
        yield "error", "constant", "its condition fails in every case, and so refuses whatever it is for"
        return
    comes_to = constant(facts.term)
    if comes_to is False:
        yield "warning", "constant", "its condition is never true: the rule never says anything"
    elif comes_to is True and facts.is_conditional:
        words = "always true" if not facts.reads else "true wherever what it reads is there"
        yield "warning", "constant", f"its condition is {words}; leave it out, or ask has(...)"


def _names(facts: Facts, around: LintContext) -> _Faults:
    if around.schema is not None:
        known = sorted(around.schema.actions)
        is_pattern = facts.source.language == "cel"
        for name in facts.actions:
            if not any(_fits(name, action, is_pattern=is_pattern) for action in known):
                yield "error", "unknown-action", f"the domain has no action {name!r}; it has {_some(known)}"
        for kind, name in sorted(facts.named):
            if kind == "actions" and name not in known:
                yield "error", "unknown-action", f"the domain has no action {name!r}; it has {_some(known)}"
    for kind, name in sorted(facts.named):
        if kind == "kinds" and name not in KINDS:
            yield "error", "unknown-kind", f"no actor is of kind {name!r}; there are {', '.join(KINDS)}"
    if around.actors is not None:
        for pattern in (*facts.actors, *(name for kind, name in sorted(facts.named) if kind == "actors")):
            if not any(_fits(pattern, actor, is_pattern=facts.source.language == "cel") for actor in around.actors):
                yield "warning", "unknown-actor", f"no actor is registered that {pattern!r} is for"


def _paths(facts: Facts, schema: DomainSchema | None) -> _Faults:
    if schema is None:
        return
    for path in facts.reads:
        words = None
        if path[:2] == ("base", "data"):
            words = "the state has" if field_at(schema.state, path[2:]) is None else None
        elif path[:2] == ("base", "computed") and len(path) > 2:
            words = (
                "the domain computes" if f"computed.{path[2]}" not in {one.name for one in schema.computed} else None
            )
        elif path[:2] == ("intent", "input"):
            words = "the input has" if not any(_is_in(spec, path[2:]) for spec in _inputs(facts, schema)) else None
        if words is not None:
            is_certain = path in facts.required or path[:2] == ("intent", "input")
            level: Literal["error", "warning"] = "error" if is_certain else "warning"
            then = ": the rule fails in every case that it reads it in" if path in facts.required else ""
            hint = _did_you_mean(path, facts, schema)
            yield level, "unknown-path", f"it reads {'.'.join(path)}, which is nothing that {words}{then}{hint}"
    for summed, name in facts.sums:
        inputs = [action.input or ANY for key, action in schema.actions.items() if name in (None, key)]
        if inputs and not any(_is_in(spec, parse_path(summed)) for spec in inputs):
            of = "any action" if name is None else repr(name)
            yield "warning", "unknown-path", f"history.sum adds up {summed!r}, which the input of {of} does not have"
    for pattern in facts.scope:
        certain = tuple(takewhile(lambda name: name is not None, parse_pattern(pattern)))
        if field_at(schema.state, cast(Segments, certain)) is None:
            yield "warning", "unknown-path", f"it narrows to {pattern}, which is nothing that the state has"


def _did_you_mean(path: tuple[str, ...], facts: Facts, schema: DomainSchema) -> str:
    """Return the nearest name beside the first one of a path that does not exist."""
    roots = [schema.state] if path[:2] == ("base", "data") else []
    roots = _inputs(facts, schema) if path[:2] == ("intent", "input") else roots
    for end in range(2, len(path)):
        beside = [found for root in roots if (found := field_at(root, path[2:end])) is not None]
        names = sorted({name for one in beside for name in (one.fields or {})})
        if path[end] in names or any(one.fields is None for one in beside):
            continue
        close = get_close_matches(path[end], names, n=1)
        return f"; did you mean {'.'.join((*path[:end], close[0]))}?" if close else f"; it has {_some(names)}"
    return ""


def _types(facts: Facts, schema: DomainSchema | None) -> _Faults:
    """Yield comparisons that never hold or fail, and those of Cedar, which compares no whole numbers with decimals."""
    if schema is None:
        return
    for path, kind in facts.compared:
        types = {spec.type for spec in _specs(facts, path, schema)}
        if types and types <= _PLAIN and kind not in types:
            where, is_a = ".".join(path), " or ".join(sorted(types))
            yield "error", "type", f"it compares {where}, which is {is_a}, with a {kind}: they are never equal"
    for name, path in facts.uses:
        types = {spec.type for spec in _specs(facts, path, schema)}
        where = ".".join(path)
        if types and not types & {"number", "any", "enum"}:
            is_a = " or ".join(sorted(types))
            yield "error", "type", f"it applies {name} to {where}, which is {is_a} and no number: the rule fails there"
        elif "number" in types and name in OF_WHOLE_NUMBERS:
            words = "with decimals it is a decimal to Cedar, and the rule fails"
            yield "warning", "type", f"it applies {name} to {where}, which must be a whole number: {words}"
        elif "number" in types:
            words = "a whole number is no decimal to Cedar, and the rule fails"
            yield "warning", "type", f"it applies {name} to {where}, which must have decimals: {words}"


def _specs(facts: Facts, path: tuple[str, ...], schema: DomainSchema) -> list[FieldSpec]:
    """Return the field specs of a path of the state or of the inputs."""
    roots = [schema.state] if path[:2] == ("base", "data") else []
    roots = _inputs(facts, schema) if path[:2] == ("intent", "input") else roots
    return [found for root in roots if (found := field_at(root, path[2:])) is not None]


def _inputs(facts: Facts, schema: DomainSchema) -> list[FieldSpec]:
    """Return the inputs of the actions to which a rule applies."""
    is_pattern = facts.source.language == "cel"
    return [
        action.input or ANY
        for name, action in schema.actions.items()
        if not facts.actions or any(_fits(pattern, name, is_pattern=is_pattern) for pattern in facts.actions)
    ] or [ANY]


def _is_in(spec: FieldSpec, names: tuple[str, ...]) -> bool:
    return field_at(spec, names) is not None


def _people(facts: Facts, around: LintContext) -> _Faults:
    if facts.effect != "escalate" or around.actors is None:
        return
    for name in facts.to or around.asks:
        if name == ANYBODY:
            if "human" not in around.actors.values():
                yield "error", "nobody-to-ask", "it asks any human (*), and none is registered (`worldctl actor add`)"
        elif name not in around.actors:
            yield "error", "nobody-to-ask", f"it asks {name!r}, who is not registered (`worldctl actor add`)"


def _python(facts: Facts) -> _Faults:
    for words in facts.impure:
        yield "error", "impure", words
    if facts.source.language == "python-bytecode":
        yield "warning", "no-source", "its text is not available, so that its hash is that of its compiled form"


# Pairs of rules


def _between(facts: Sequence[Facts], around: LintContext) -> Iterator[LintFinding]:
    """Yield contradictions and rules without effect, each rule once."""
    known = [one for one in facts if one.effect is not None and constant(one.term) is not False and not one.fails]
    reported: set[str] = set()
    if len(known) ** 2 > MAX_PAIRS:
        file = facts[0].source.module
        yield LintFinding(
            "warning", "too-many", f"{len(known)} rules are too many to be compared with each other", file
        )
        return
    for one, other in combinations(known, 2):
        if "reject" in (one.effect, other.effect) and one.effect != other.effect and _is_same(one, other, around):
            reported |= {one.name, other.name}
            words = f"{one.name} says {one.effect} to the same cases: the rejection always wins"
            yield _finding(other, "error", "contradiction", words)
    order = {one.name: at for at, one in enumerate(known)}
    for wide, narrow in permutations(known, 2):
        is_before = order[wide.name] < order[narrow.name]
        words_for = _OUTWEIGHS.get((wide.effect or "", narrow.effect or ""))
        if words_for is None or {wide.name, narrow.name} <= reported or narrow.name in reported:
            continue
        why = words_for(wide, narrow, is_before)
        if why is not None and _covers(wide, narrow, around):
            reported.add(narrow.name)
            yield _finding(narrow, "warning", "never-matters", f"it never matters: {wide.name} {why}")


def _always(words: str) -> Callable[[Facts, Facts, bool], str | None]:
    return lambda wide, narrow, is_before: words


def _behind(words: str) -> Callable[[Facts, Facts, bool], str | None]:
    return lambda wide, narrow, is_before: words if is_before else None


def _narrower(wide: Facts, narrow: Facts, is_before: bool) -> str | None:
    try:
        is_whole = is_within(wide.scope, narrow.scope)
        is_same = is_whole and is_within(narrow.scope, wide.scope)
    except RefusedError:
        return None
    return "narrows all its cases as much or more" if is_whole and (is_before or not is_same) else None


_OUTWEIGHS: Final[Mapping[tuple[str, str], Callable[[Facts, Facts, bool], str | None]]] = {
    ("reject", "approve"): _always("rejects all its cases"),
    ("reject", "narrow"): _always("rejects all its cases"),
    ("reject", "escalate"): _always("rejects all its cases"),
    ("reject", "reject"): _behind("rejects all its cases before it"),
    ("escalate", "approve"): _always("asks people in all its cases, and that is stronger than an approval"),
    ("narrow", "approve"): _always("approves and narrows all its cases; an approval beside it adds nothing"),
    ("approve", "approve"): _behind("approves all its cases before it"),
    ("narrow", "narrow"): _narrower,
}
"""By the effects of two rules, the first of which covers the second: why the second has no effect."""


def _is_same(one: Facts, other: Facts, around: LintContext) -> bool:
    return _covers(one, other, around) and _covers(other, one, around)


def _covers(wide: Facts, narrow: Facts, around: LintContext) -> bool:
    """Return whether a rule certainly applies to all cases of another one."""
    return (
        _takes(
            wide, narrow, wide.actions, narrow.actions, None if around.schema is None else sorted(around.schema.actions)
        )
        and _takes(wide, narrow, wide.actors, narrow.actors, None)
        and implies(narrow.term, wide.term)
    )


def _takes(wide: Facts, narrow: Facts, outer: Sequence[str], inner: Sequence[str], known: Sequence[str] | None) -> bool:
    if not outer:
        return True
    of_wide, of_narrow = (one.source.language == "cel" for one in (wide, narrow))
    if known is not None:
        named = [name for name in known if not inner or any(_fits(one, name, is_pattern=of_narrow) for one in inner)]
        return bool(named) and all(any(_fits(one, name, is_pattern=of_wide) for one in outer) for name in named)
    return bool(inner) and all(any(_fits(one, name, is_pattern=of_wide) for one in outer) for name in inner)


def _fits(pattern: str, name: str, *, is_pattern: bool) -> bool:
    if not is_pattern:
        return pattern == name
    from authority.policies.policy_file import fits  # the file was read with it

    return fits(pattern, name)


def _some(known: Sequence[str]) -> str:
    return ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") if known else "none"
