"""What a rule's condition requires of the input: truth values, and exact texts.

A condition is read as comparisons joined by ``&&`` and ``||``; whatever else it contains counts as requiring nothing.
So what is found is certainly required, in the language of policy files and in Cedar; of rules in Python nothing is
known. Source: docs/agents.md, rule W.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from authority.cel.tokens import outer_indexes, tokens_of, unwrapped
from authority.policies.rules import Rule
from authority.policies.source_hash import source_of

__all__ = ["InputConditions", "conditions_of"]

Texts = frozenset[str]


@dataclass(frozen=True, slots=True)
class InputConditions:
    """What a condition requires.

    Args:
        texts: returns the texts of which a path of the case is one wherever the condition holds; None where it may be
            another. Paths are those of policy files, such as ``("intent", "input", "command")``.
        is_true: returns whether a path is true wherever the condition holds.
    """

    texts: Callable[[Sequence[str]], Texts | None]
    is_true: Callable[[Sequence[str]], bool]

    def are_exact(self, members: Sequence[str]) -> bool:
        """Return whether each of these members of the input is compared with exact texts."""
        return bool(members) and all(self.texts(("intent", "input", name)) is not None for name in members)


_NONE: Final = InputConditions(lambda _: None, lambda _: False)


def conditions_of(rule: Rule) -> InputConditions:
    """Return what a rule requires where it answers."""
    language = source_of(rule).language
    if language == "cel":
        when = getattr(rule, "entry").when  # noqa: B009 - a rule of a file, whose module imports this one's neighbours
        return _NONE if when is None else _of_cel([token.text for token in tokens_of(when)])
    if language == "cedar":
        return _of_cedar(getattr(rule, "text"))  # noqa: B009
    return _NONE


# Policy files


def _of_cel(tokens: Sequence[str]) -> InputConditions:
    def texts(path: Sequence[str]) -> Texts | None:
        named = _dotted(path)
        return _cel_texts(tokens, lambda part: _compared_texts(part, named))

    def is_true(path: Sequence[str]) -> bool:
        named = _dotted(path)
        holds = (named, [*named, "==", "true"], ["true", "==", *named])
        return _cel_texts(tokens, lambda part: frozenset() if list(part) in holds else None) is not None

    return InputConditions(texts, is_true)


def _cel_texts(tokens: Sequence[str], of: Callable[[Sequence[str]], Texts | None]) -> Texts | None:
    """Return what ``of`` finds in comparisons: in one part of a conjunction, or in all parts of a disjunction."""
    tokens = unwrapped(tokens)
    outer = outer_indexes(tokens)
    if any(tokens[at] in ("?", ":") for at in outer):
        return None
    for sign, join in (("||", _any_of), ("&&", _all_of)):
        cuts = [at for at in outer if tokens[at] == sign]
        if cuts:
            ends, begins = [*cuts, len(tokens)], [0, *(at + 1 for at in cuts)]
            return join([_cel_texts(tokens[begin:end], of) for begin, end in zip(begins, ends, strict=True)])
    return of(tokens)


def _compared_texts(tokens: Sequence[str], named: Sequence[str]) -> Texts | None:
    """Return the texts that a comparison admits for a path: ``path == "text"``, or ``path in ["text", ...]``."""
    size = len(named)
    if list(tokens[: size + 1]) == [*named, "=="] and len(tokens) == size + 2:
        return _literals(tokens[size + 1 :])
    if list(tokens[1:]) == ["==", *named]:
        return _literals(tokens[:1])
    if list(tokens[: size + 2]) == [*named, "in", "["] and tokens[-1] == "]":
        inner = tokens[size + 2 : -1]
        is_list = all(token == "," for token in inner[1::2]) and len(inner) % 2 == 1
        return _literals(inner[::2]) if is_list else None
    return None


def _literals(tokens: Sequence[str]) -> Texts | None:
    found = set()
    for token in tokens:
        try:
            value = ast.literal_eval(token) if token[:1] in ("'", '"') else None
        except (ValueError, SyntaxError):
            value = None
        if not isinstance(value, str):
            return None
        found.add(value)
    return frozenset(found) if found else None


def _dotted(path: Sequence[str]) -> list[str]:
    return [piece for name in path for piece in (".", name)][1:]


def _any_of(parts: Sequence[Texts | None]) -> Texts | None:
    known = [part for part in parts if part is not None]
    return frozenset().union(*known) if len(known) == len(parts) else None


def _all_of(parts: Sequence[Texts | None]) -> Texts | None:
    return next((part for part in parts if part is not None), None)


# Cedar


def _of_cedar(text: str) -> InputConditions:
    import cedarpy  # the rule was read with it

    (policy,) = json.loads(cedarpy.policies_to_json_str(text))["staticPolicies"].values()
    bodies = [one["body"] for one in policy["conditions"] if one["kind"] == "when"]

    def texts(path: Sequence[str]) -> Texts | None:
        if tuple(path) == ("intent", "type"):
            head = policy["action"]
            named = [one for one in (head.get("entity"), *head.get("entities", ())) if one is not None]
            return frozenset(str(one["id"]) for one in named) or None
        return _all_of([_cedar_texts(body, lambda node: _cedar_compared(node, path[1:])) for body in bodies])

    def is_true(path: Sequence[str]) -> bool:
        def of(node: Mapping[str, Any]) -> Texts | None:
            inner = node.get("==")
            sides = [node] if inner is None else [inner["left"], inner["right"]]
            rest = [side for side in sides if not _is_read(side, path[1:])]
            return frozenset() if rest in ([], [{"Value": True}]) else None

        return any(_cedar_texts(body, of) is not None for body in bodies)

    return InputConditions(texts, is_true)


def _cedar_texts(node: Mapping[str, Any], of: Callable[[Mapping[str, Any]], Texts | None]) -> Texts | None:
    for sign, join in (("||", _any_of), ("&&", _all_of)):
        if sign in node:
            return join([_cedar_texts(node[sign][side], of) for side in ("left", "right")])
    return of(node)


def _cedar_compared(node: Mapping[str, Any], path: Sequence[str]) -> Texts | None:
    inner = node.get("==")
    if inner is None:
        return None
    for side, other in (("left", "right"), ("right", "left")):
        value = inner[other].get("Value")
        if _is_read(inner[side], path) and isinstance(value, str):
            return frozenset({value})
    return None


def _is_read(node: Mapping[str, Any], path: Sequence[str]) -> bool:
    """Return whether an expression reads a path of the context, such as ``context.input.command``."""
    names: list[str] = []
    while "." in node:
        names.insert(0, str(node["."]["attr"]))
        node = node["."]["left"]
    return node.get("Var") == "context" and names == list(path)
