"""Facts of a rule that are known without running it.

Of rules in Python only the source is known. ``authority.lint.lint`` imports this. Source: design section 6;
CARD-policy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from authority.lint.terms import ALWAYS, NEVER, Term, cedar_nodes, constant, term_of_cedar, term_of_cel
from authority.policies.rule_guard import fault_of, impure_in
from authority.policies.rules import Rule
from authority.policies.source_hash import RuleSource, source_of
from world.errors import RefusedError
from world.model.canonical_json import canonical_text

_NAMED: Final = {"intent.type": "actions", "actor.kind": "kinds", "actor.actorId": "actors"}
_CEDAR_NAMED: Final = {"Action": "actions", "Actor": "actors"}
_CEDAR_ROOTS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("context", "input"): ("intent", "input"),
    ("resource", "data"): ("base", "data"),
    ("resource", "computed"): ("base", "computed"),
    ("principal", "kind"): ("actor", "kind"),
}


OF_WHOLE_NUMBERS: Final = ("<", "<=", ">", ">=", "+", "-", "*")
OF_DECIMALS: Final = ("lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
"""Operators and functions of Cedar for whole numbers only, and for decimals only."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of a rule.

    Args:
        name: the rule's name.
        source: its source.
        effect: approve, reject, narrow or escalate; None where it depends on a run.
        actions: patterns of the action names to which it applies; empty for all.
        actors: patterns of the actors' ids, likewise.
        term: its condition.
        is_conditional: whether it has a condition.
        fails: whether its condition is constant and fails.
        named: literals in its condition: ``("actions" | "kinds" | "actors", text)``.
        reads: the paths that it reads, with their names.
        required: those of them without which the rule fails (Cedar: read without ``has``).
        uses: in Cedar, the operators and functions of numbers with the paths of their operands.
        compared: paths that are compared with a literal, each with the literal's type as in field specs.
        sums: sums over earlier inputs: the path, and the action, None for any.
        impure: reasons why a rule in Python is not a function of its case.
        scope: the patterns it narrows to.
        to: the actors who are asked; empty for those of the binding.
    """

    name: str
    source: RuleSource
    effect: str | None
    actions: tuple[str, ...] = ()
    actors: tuple[str, ...] = ()
    term: Term = ALWAYS
    is_conditional: bool = False
    fails: bool = False
    named: frozenset[tuple[str, str]] = frozenset()
    reads: tuple[tuple[str, ...], ...] = ()
    required: frozenset[tuple[str, ...]] = frozenset()
    uses: tuple[tuple[str, tuple[str, ...]], ...] = ()
    compared: tuple[tuple[tuple[str, ...], str], ...] = ()
    sums: tuple[tuple[str, str | None], ...] = ()
    impure: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    to: tuple[str, ...] = ()


def facts_of(rule: Rule) -> Facts:
    """Return the facts of a rule."""
    source = source_of(rule)
    if source.language == "cel":
        return _of_file(rule, source)
    if source.language == "cedar":
        return _of_cedar(rule, source)
    return Facts(rule.name, source, None, impure=tuple(fault_of(one.impurity, one.where) for one in impure_in(rule)))


def _of_file(rule: Any, source: RuleSource) -> Facts:
    entry, condition = rule.entry, rule.condition
    reads = [read.path for read in (() if condition is None else condition.reading.reads)]
    reads += [part.path for part in rule.reason.parts if not isinstance(part, str)]
    term, fails, tokens = ALWAYS, False, []
    if condition is not None:
        from authority.cel.tokens import tokens_of  # the file was read with it

        tokens = [token.text for token in tokens_of(condition.text)]
        term = term_of_cel(tokens)
        if constant(term) is None and not condition.reading.reads and not condition.reading.calls:
            term, fails = _evaluated(condition, term)
    return Facts(
        rule.name,
        source,
        entry.verdict,
        tuple(entry.actions),
        tuple(entry.actors),
        term,
        condition is not None,
        fails,
        frozenset(_named(tokens)),
        tuple(dict.fromkeys(_names(path) for path in reads)),
        compared=tuple(dict.fromkeys(_compared_in_cel(term))),
        sums=tuple(dict.fromkeys(_sums(tokens))),
        scope=tuple(entry.scope),
        to=tuple(entry.to),
    )


def _evaluated(condition: Any, term: Term) -> tuple[Term, bool]:
    """Return the result of a condition that reads nothing, and whether it fails."""
    try:
        return (ALWAYS if condition.holds(None) else NEVER), False
    except RefusedError:
        return term, True


def _names(path: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of a path up to the first computed step."""
    names: list[str] = []
    for step in path:
        if isinstance(step, tuple):
            break
        names.append(str(step))
    return tuple(names)


def _named(tokens: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the literals that CEL compares with actions, kinds and actors."""
    for at, token in enumerate(tokens):
        kind = _NAMED.get("".join(tokens[at : at + 3]))
        if kind is not None and tokens[at - 1 : at] != ["."] and tokens[at + 3 : at + 4] != ["."]:
            yield from ((kind, text) for text in _beside(tokens, at))
        if token in ('"action"', "'action'") and tokens[at + 1 : at + 2] == [":"] and "history" in tokens[:at]:
            yield from (("actions", text) for text in _texts(tokens[at + 2 : at + 3]))


def _sums(tokens: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield path and action of every ``history.sum``; None for any action."""
    for at, token in enumerate(tokens):
        if token != "history" or tokens[at + 1 : at + 4] != [".", "sum", "("]:
            continue
        depth, end = 1, at + 4
        while depth and end < len(tokens):
            depth += (tokens[end] == "(") - (tokens[end] == ")")
            end += 1
        named = [
            text
            for place in range(at + 5, end - 3)
            if tokens[place] in ('"action"', "'action'")
            and tokens[place + 1] == ":"
            and tokens[place + 3] in (",", "}")
            for text in _texts(tokens[place + 2 : place + 3])
        ]
        yield from ((path, named[0] if len(named) == 1 else None) for path in _texts(tokens[at + 4 : at + 5]))


def _beside(tokens: Sequence[str], at: int) -> Iterator[str]:
    if at >= 2 and tokens[at - 1] in ("==", "!="):
        yield from _texts(tokens[at - 2 : at - 1])
    after = tokens[at + 3 : at + 4]
    if after in (["=="], ["!="]):
        yield from _texts(tokens[at + 4 : at + 5])
    elif after == ["in"] and tokens[at + 4 : at + 5] == ["["] and "]" in tokens[at:]:
        yield from _texts(tokens[at + 5 : tokens.index("]", at)])


def _texts(tokens: Sequence[str]) -> Iterator[str]:
    for token in tokens:
        if token[:1] in ("'", '"'):
            try:
                value = ast.literal_eval(token)
            except (ValueError, SyntaxError):
                continue
            if isinstance(value, str):
                yield value


def _compared_in_cel(term: Term) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the paths that a condition compares with literals, and the types of these."""
    for text in sorted(term.comparisons()):
        for sign in (" == ", " < "):
            left, _, right = text.partition(sign)
            for named, literal in ((left, right), (right, left)):
                path, kind = tuple(named.split(" . ")), _literal_type(literal)
                if kind is not None and len(path) > 1 and all(name.isidentifier() for name in path):
                    yield path, kind


def _literal_type(text: str) -> str | None:
    """Return the type of a literal of a condition, None for another text."""
    try:
        value = ast.literal_eval({"true": "True", "false": "False"}.get(text, text.replace("- ", "-")))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return _type_of(value)


def _type_of(value: Any) -> str | None:
    kinds = ((bool, "boolean"), (int, "number"), (float, "number"), (str, "string"), (list, "array"))
    return next((name for kind, name in kinds if isinstance(value, kind)), None)


def _compared_in_cedar(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the attributes that a policy compares with literals for equality, and the types of these."""
    for node in nodes:
        inner = node.get("==") or node.get("!=") or {}
        for one, other in ((inner.get("left"), inner.get("right")), (inner.get("right"), inner.get("left"))):
            kind = None if other is None else "number" if "decimal" in other else _type_of(other.get("Value"))
            path = _attribute(one) if one is not None and "." in one else ()
            if kind is not None and path:
                yield path, kind


def _of_cedar(rule: Any, source: RuleSource) -> Facts:
    import json

    import cedarpy  # the rule was read with it

    (policy,) = json.loads(cedarpy.policies_to_json_str(rule.text))["staticPolicies"].values()
    nodes = list(cedar_nodes(policy["conditions"]))
    entities = [node["__entity"] for node in nodes if "__entity" in node]
    named = {(_CEDAR_NAMED[one["type"]], one["id"]) for one in entities if one["type"] in _CEDAR_NAMED}
    for node in nodes:
        inner = node.get("==") or node.get("!=")
        if inner and _attribute(inner["left"]) == ("actor", "kind") and isinstance(inner["right"].get("Value"), str):
            named.add(("kinds", inner["right"]["Value"]))
    reads = (_attribute(node) for node in nodes if "." in node or "has" in node)
    return Facts(
        rule.name,
        source,
        "approve" if rule.effect == "permit" else "reject",
        tuple(_entities(policy["action"])),
        tuple(_entities(policy["principal"])),
        _whole_term(policy),
        bool(policy["conditions"]),
        named=frozenset(named),
        reads=tuple(dict.fromkeys(path for path in reads if path)),
        required=_required(nodes),
        uses=tuple(sorted(set(_uses(nodes)))),
        compared=tuple(dict.fromkeys(_compared_in_cedar(nodes))),
    )


def _whole_term(policy: Mapping[str, Any]) -> Term:
    """Return the term of the conditions, and of a resource in the head, which names a branch."""
    term, head = term_of_cedar(policy["conditions"]), policy["resource"]
    named = head.get("entity") or (head.get("in") or {}).get("entity")
    if named is None:
        return term
    branch = Term("is", f"resource == {canonical_text(named)}")
    return branch if term == ALWAYS else Term("and", parts=(branch, term))


def _required(nodes: Sequence[Mapping[str, Any]]) -> frozenset[tuple[str, ...]]:
    """Return the paths that a Cedar policy reads without a check by ``has``."""
    checked = {_attribute(node) for node in nodes if "has" in node}
    read = {_attribute(node) for node in nodes if "." in node} - {()}
    return frozenset(path for path in read if not any(path[:end] in checked for end in range(1, len(path) + 1)))


def _uses(nodes: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the operators and functions of numbers in Cedar with their operands."""
    for node in nodes:
        for name in (*OF_WHOLE_NUMBERS, *OF_DECIMALS):
            inner = node.get(name)
            sides = inner if isinstance(inner, list) else inner.values() if isinstance(inner, dict) else ()
            for side in sides:
                path = _attribute(side) if isinstance(side, dict) and "." in side else ()
                if path:
                    yield name, path


def _entities(head: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ids in the head of a Cedar policy, which are never patterns."""
    for entity in (head.get("entity"), *head.get("entities", ()), (head.get("in") or {}).get("entity")):
        if entity is not None:
            yield str(entity["id"])


def _attribute(node: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the path of an attribute expression, empty for any other node."""
    names: list[str] = []
    while "Var" not in node:
        inner = node.get(".") or node.get("has")
        if inner is None:
            return ()
        names.insert(0, str(inner["attr"]))
        node = inner["left"]
    root = _CEDAR_ROOTS.get((str(node["Var"]), names[0] if names else ""))
    return () if root is None else (*root, *names[1:])
