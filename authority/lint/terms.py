"""Conditions as terms: comparisons joined by and, or, not.

Every comparison counts as an independent boolean. So a term that is found to be constant or implied certainly is, and
one that is not found may be nevertheless. Source: design section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, Literal

from authority.cel.tokens import outer_indexes, unwrapped
from world.model.canonical_json import canonical_text

MAX_COMPARISONS: Final = 10
"""Maximum number of comparisons of two conditions that are compared."""


@dataclass(frozen=True, slots=True)
class Term:
    """A condition, or a part of one.

    Args:
        kind: ``is`` a comparison; ``and``, ``or``, ``not`` of its parts. ``and`` of nothing is true, ``or`` of nothing
            false.
        text: of a comparison.
        parts: of the others.
    """

    kind: Literal["is", "and", "or", "not"]
    text: str = ""
    parts: tuple[Term, ...] = ()

    def comparisons(self) -> frozenset[str]:
        """Return the texts of all comparisons."""
        if self.kind == "is":
            return frozenset({self.text})
        return frozenset[str]().union(*(part.comparisons() for part in self.parts))

    def holds(self, given: Mapping[str, bool]) -> bool:
        """Return the value of the term for given values of its comparisons."""
        if self.kind == "is":
            return given[self.text]
        if self.kind == "not":
            return not self.parts[0].holds(given)
        return (all if self.kind == "and" else any)(part.holds(given) for part in self.parts)


ALWAYS: Final = Term("and")
NEVER: Final = Term("or")


def constant(term: Term) -> bool | None:
    """Return the constant value of a condition, None where it varies."""
    values = {term.holds(given) for given in _cases(term.comparisons())}
    return values.pop() if len(values) == 1 else None


def implies(narrow: Term, wide: Term) -> bool:
    """Return whether one condition certainly holds wherever another one does."""
    if wide == ALWAYS or narrow == wide:
        return True
    cases = _cases(narrow.comparisons() | wide.comparisons())
    return bool(cases) and all(wide.holds(given) for given in cases if narrow.holds(given))


def _cases(comparisons: frozenset[str]) -> list[dict[str, bool]]:
    """Return all combinations of values of comparisons; empty beyond the maximum."""
    names = sorted(comparisons)
    if len(names) > MAX_COMPARISONS:
        return []
    return [dict(zip(names, given, strict=True)) for given in product((True, False), repeat=len(names))]


# CEL

_COMPARES: Final = frozenset({"==", "!=", "<", "<=", ">", ">=", "in"})
_COUNTS: Final = frozenset({"+", "-", "*", "/", "%", "?", ":"})


def term_of_cel(tokens: Sequence[str]) -> Term:
    """Return the term of a CEL condition from the texts of its tokens."""
    tokens = unwrapped(tokens)
    marks = outer_indexes(tokens)
    if any(tokens[at] == "?" for at in marks):
        return Term("is", " ".join(tokens))
    for sign, kind in (("||", "or"), ("&&", "and")):
        cuts = [at for at in marks if tokens[at] == sign]
        if cuts:
            ends = [*cuts, len(tokens)]
            begins = [0, *(at + 1 for at in cuts)]
            parts = tuple(term_of_cel(tokens[begin:end]) for begin, end in zip(begins, ends, strict=True))
            return Term("or" if kind == "or" else "and", parts=parts)
    return _compared(tokens, marks)


def _compared(tokens: list[str], marks: Sequence[int]) -> Term:
    signs = [at for at in marks if tokens[at] in _COMPARES]
    if not signs and tokens[0] == "!" and not any(tokens[at] in _COUNTS for at in marks):
        return Term("not", parts=(term_of_cel(tokens[1:]),))
    if tokens in (["true"], ["false"]):
        return ALWAYS if tokens == ["true"] else NEVER
    if len(signs) != 1 or tokens[signs[0]] == "in":
        return Term("is", " ".join(tokens))
    left, sign, right = " ".join(tokens[: signs[0]]), tokens[signs[0]], " ".join(tokens[signs[0] + 1 :])
    return compared(left, sign, right)


def compared(left: str, sign: str, right: str) -> Term:
    """Return the term of a comparison in normal form: ``<``, ``==`` or a negation."""
    if sign in (">", "<="):
        left, right = right, left
    text = f"{left} < {right}" if sign not in ("==", "!=") else " == ".join(sorted((left, right)))
    is_one = Term("is", text)
    return Term("not", parts=(is_one,)) if sign in ("!=", ">=", "<=") else is_one


# Cedar


def term_of_cedar(conditions: Sequence[Mapping[str, Any]]) -> Term:
    """Return the term of ``when`` and ``unless`` of a Cedar policy in JSON form."""
    parts = []
    for one in conditions:
        term = _of_cedar(one["body"])
        parts.append(Term("not", parts=(term,)) if one["kind"] == "unless" else term)
    return parts[0] if len(parts) == 1 else Term("and", parts=tuple(parts))


def _of_cedar(body: Mapping[str, Any]) -> Term:
    ((kind, inner),) = body.items()
    if kind in ("&&", "||"):
        parts = (_of_cedar(inner["left"]), _of_cedar(inner["right"]))
        return Term("and" if kind == "&&" else "or", parts=parts)
    if kind == "!":
        return Term("not", parts=(_of_cedar(inner["arg"]),))
    if kind == "Value" and isinstance(inner, bool):
        return ALWAYS if inner else NEVER
    if kind in _COMPARES - {"in"}:
        return compared(canonical_text(inner["left"]), kind, canonical_text(inner["right"]))
    return Term("is", canonical_text(body))


def cedar_nodes(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every object of a Cedar policy in JSON form."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            yield one
            pending += one.values()
        elif isinstance(one, list):
            pending += one
