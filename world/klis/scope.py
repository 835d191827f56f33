"""Checks of the claims of one manifest, and its effective triples.

Rules (KLIS-1 sections 3, 6.4 and 7). Two claims meet when their resources overlap.

- The same resource twice: the strictest claim is leased. DEPENDS_ON < CONSUMES < PROVIDES < MUTATES <
  RENAMES < DELETES; each excludes at least what those before it exclude (KM-3.1, KM-3.2, KM-6.4).
- DELETES is terminal. No other predicate may meet it, unless the manifest is ``ordered`` and PROVIDES, CONSUMES or
  MUTATES precede it: then they are part of the deletion, and the lease is DELETES (KM-3.3).
- DEPENDS_ON requires an unchanged resource, so MUTATES and RENAMES may not meet it.
- RENAMES takes a resource away under one name and PROVIDES it under another, of the same type, which is not the same
  place nor inside it; one resource has one new name (KP-1). What is read or changed under the old name comes before.
  The new name is its ``to``, or a PROVIDES of the same manifest.
- No claim but DEPENDS_ON on a root, nor on a subtree that is wider than the operator allows (KM-7.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.predicate import OPPOSED, Predicate
from world.klis.resources.resource_types import ResourceTypes
from world.klis.triple import Triple

__all__ = ["Claim", "check_claims", "check_targets", "check_width", "effective_triples", "severity"]

_ORDER: Final = (
    Predicate.DEPENDS_ON,
    Predicate.CONSUMES,
    Predicate.PROVIDES,
    Predicate.MUTATES,
    Predicate.RENAMES,
    Predicate.DELETES,
)
_SEVERITY: Final = {predicate: (len(OPPOSED[predicate]), place) for place, predicate in enumerate(_ORDER)}
_BEFORE_DELETION: Final = frozenset({Predicate.PROVIDES, Predicate.CONSUMES, Predicate.MUTATES})
_BREAKS_INVARIANCE: Final = frozenset({Predicate.MUTATES, Predicate.RENAMES})


@dataclass(frozen=True, slots=True)
class Claim:
    """A triple, its index in the scope, and the path of its resource."""

    index: int
    triple: Triple
    path: str
    renamed_from: Triple | None = None


def severity(predicate: Predicate) -> tuple[int, int]:
    """Return the strictness of a predicate as a sort key."""
    return _SEVERITY[predicate]


def effective_triples(claims: Iterable[Claim]) -> tuple[Triple, ...]:
    """Return the triples of the leases, in order of first mention.

    Args:
        claims: the claims of one manifest, free of contradictions.
    """
    chosen: dict[str, Triple] = {}
    for claim in claims:
        triple = claim.triple
        text = triple.resource.text
        best = chosen.get(text)
        if best is None or _weight(triple) > _weight(best):
            chosen[text] = triple
    deleted = {triple.resource.key: triple for triple in chosen.values() if triple.predicate is Predicate.DELETES}
    if not deleted:
        return tuple(chosen.values())
    return tuple(triple for triple in chosen.values() if not _is_absorbed(triple, deleted))


def _weight(triple: Triple) -> tuple[int, int, int]:
    return *severity(triple.predicate), ("Low", "Medium", "High").index(triple.confidence)


def _is_absorbed(triple: Triple, deleted: dict[str, Triple]) -> bool:
    """Return whether a triple is part of a deletion."""
    if triple.predicate is Predicate.DELETES:
        return False
    same = deleted.get(triple.resource.key)
    if same is not None and (same.covers or not triple.covers):
        return True
    return any(key in deleted and deleted[key].covers for key in triple.resource.ancestors)


def check_claims(claims: Sequence[Claim], *, ordered: bool) -> None:
    """Raise for claims that contradict each other.

    Args:
        claims: the claims of one manifest, in its order.
        ordered: whether that order is the order of the work.

    Raises:
        RefusedError: ``INTERNAL_CONTRADICTION``, with the paths of both claims.
    """
    predicates = {claim.triple.predicate for claim in claims}
    if Predicate.RENAMES in predicates:
        _check_renames(claims)
    if len(predicates) > 1 and (
        Predicate.DELETES in predicates or (Predicate.DEPENDS_ON in predicates and predicates & _BREAKS_INVARIANCE)
    ):
        _check_meetings(claims, ordered=ordered)


def _check_renames(claims: Iterable[Claim]) -> None:
    targets: dict[str, Claim] = {}
    for claim in claims:
        old = claim.renamed_from
        if old is None:
            continue
        source, target = old.resource, claim.triple.resource
        if source.type != target.type or source.subtree != target.subtree:
            raise _contradiction(claim, claim, f"{source.text} cannot become {target.text}, which is of another kind")
        if source.key == target.key or (old.covers and source.key in target.ancestors):
            raise _contradiction(claim, claim, f"{source.text} cannot be renamed to {target.text}, its own place")
        first = targets.setdefault(source.key, claim)
        if first.triple.resource != target:
            raise _contradiction(first, claim, f"{source.text} is renamed to two names")


def check_targets(claims: Sequence[Claim]) -> None:
    """Raise for a RENAMES without ``to`` and without a PROVIDES elsewhere.

    Args:
        claims: the claims of one manifest.

    Raises:
        RefusedError: ``MALFORMED_SCHEMA``, with the path where ``to`` is missing.
    """
    named = {claim.renamed_from.resource for claim in claims if claim.renamed_from is not None}
    types: Counter[str] = Counter()
    keys: Counter[str] = Counter()
    within: Counter[str] = Counter()  # at a place or below it
    for claim in claims:
        resource = claim.triple.resource
        if claim.triple.predicate is Predicate.PROVIDES:
            types[resource.type] += 1
            keys[resource.key] += 1
            within.update((resource.key, *resource.ancestors))
    for claim in claims:
        old = claim.triple
        if old.predicate is not Predicate.RENAMES or old.resource in named:
            continue
        counts = within if old.covers else keys
        if types[old.resource.type] == counts[old.resource.key]:  # none is provided elsewhere
            path = claim.path.removesuffix(".resource") + ".to"
            raise RefusedError(
                ErrorCode.MALFORMED_SCHEMA,
                f"{path} is missing: RENAMES {old.resource.text} has no new name. Give it as `to`, or claim PROVIDES "
                "of the new name in the same manifest.",
                path=path,
                resource=old.resource.text,
            )


_Spans = dict[tuple[Predicate, bool], tuple[Claim, Claim]]
"""The first and the last claim on one place, by predicate and by coverage of the subtree."""


def _check_meetings(claims: Iterable[Claim], *, ordered: bool) -> None:
    places: dict[str, _Spans] = {}
    for claim in claims:
        spans = places.setdefault(claim.triple.resource.key, {})
        kind = (claim.triple.predicate, claim.triple.covers)
        spans[kind] = (spans[kind][0] if kind in spans else claim, claim)
    for key, spans in places.items():
        _check_place(spans, spans, ordered=ordered)
        first, _ = next(iter(spans.values()))
        for above in first.triple.resource.ancestors:
            if above in places and above != key:
                covering = {kind: span for kind, span in places[above].items() if kind[1]}
                _check_place(covering, spans, ordered=ordered)


def _check_place(above: _Spans, here: _Spans, *, ordered: bool) -> None:
    for (one, _), one_span in above.items():
        for (other, _), other_span in here.items():
            clause = _why_not(one, one_span, other, other_span, ordered=ordered)
            if clause:
                pair = (_blamed(one, one_span, ordered), _blamed(other, other_span, ordered))
                first, second = sorted(pair, key=lambda claim: claim.index)
                raise _contradiction(first, second, clause)


def _blamed(predicate: Predicate, span: tuple[Claim, Claim], ordered: bool) -> Claim:
    return span[1] if ordered and predicate is not Predicate.DELETES else span[0]


def _why_not(
    one: Predicate, one_span: tuple[Claim, Claim], other: Predicate, other_span: tuple[Claim, Claim], *, ordered: bool
) -> str | None:
    if one is other:
        return None
    if other is Predicate.DELETES:
        one, one_span, other, other_span = other, other_span, one, one_span
    if one is Predicate.DELETES:
        if ordered and other in _BEFORE_DELETION and other_span[1].index < one_span[0].index:
            return None
        return "DELETES is terminal; leave the other out, or say `ordered: true` and put what is deleted last"
    if (one is Predicate.DEPENDS_ON and other in _BREAKS_INVARIANCE) or (
        other is Predicate.DEPENDS_ON and one in _BREAKS_INVARIANCE
    ):
        return "DEPENDS_ON promises that the resource stays as it is"
    return None


def _contradiction(first: Claim, second: Claim, clause: str) -> RefusedError:
    one, other = first.triple, second.triple
    return RefusedError(
        ErrorCode.INTERNAL_CONTRADICTION,
        f"{other.predicate} {other.resource.text} at {second.path} contradicts {one.predicate} {one.resource.text} at "
        f"{first.path}: {clause}."
        if first is not second
        else f"The target at {first.path}: {clause}.",
        path=second.path,
        other_path=first.path,
    )


def check_width(claims: Iterable[Claim], *, types: ResourceTypes, min_depth: int, wide: frozenset[str]) -> None:
    """Raise for claims that are wider than the operator allows (KM-7.2).

    Args:
        claims: the claims of one manifest.
        types: the types in force.
        min_depth: minimum number of names of a subtree's root; 0 allows everything.
        wide: names of the types whose roots may be claimed.

    Raises:
        RefusedError: ``GLOBAL_SCOPE``.
    """
    for claim in claims:
        triple = claim.triple
        resource = triple.resource
        if resource.depth >= min_depth or triple.predicate is Predicate.DEPENDS_ON or resource.type in wide:
            continue
        given = types[resource.type]
        is_flat = given.kind == "opaque" and given.separator is None
        if is_flat or not (triple.covers or (given.kind == "path" and not resource.depth)):
            continue
        raise RefusedError(
            ErrorCode.GLOBAL_SCOPE,
            f"{triple.predicate} {resource.text} at {claim.path} is wider than the operator allows: a subtree begins "
            f"at {min_depth} or more names below the root (min_subtree_depth). Name what is needed.",
            path=claim.path,
            resource=resource.text,
            min_subtree_depth=min_depth,
        )
