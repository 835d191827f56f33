"""External resources that an action declares, as templates (KM-2.2).

An action's ``manifest`` is a list of items ``{"predicate", "resource", "to"?, "confidence"?, "each"?}``. ``resource``
(and ``to``) is a text with places such as ``FILE:/docs/{input.name}``, or an expression; a place is a path as ``get``
reads it, and ``{{`` and ``}}`` are literal braces. With ``each``, an expression that gives an array, the item is
repeated for every element, which is read as ``$item``; null has no elements. What comes out is the scope of an intent
manifest; whether its resources are well formed is seen when it is read (``world.klis.manifest``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from world.core.expressions.expression import Evaluate, compile_expression
from world.core.expressions.scope import EvaluationContext, Scope
from world.core.values import ExpressionError
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.predicate import Predicate
from world.model.snapshot import SnapshotView

__all__ = ["ItemSpec", "compile_manifest", "declared_scope", "manifest_faults", "places_of"]

_KEYS: Final = frozenset({"predicate", "resource", "to", "confidence", "each"})
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[^{}]+|[{}]")
_EACH: Final = ("$item", "$index", "$array")


@dataclass(frozen=True, slots=True)
class ItemSpec:
    """One item of an action's manifest, compiled."""

    fixed: Mapping[str, Any]
    texts: Mapping[str, Evaluate]
    each: Evaluate | None


def places_of(template: str) -> list[str]:
    """Return the paths of a template's places, in order.

    Raises:
        RefusedError: ``INVALID_TEMPLATE`` for a brace that opens or closes nothing.
    """
    return [path for _, path in _pieces(template) if path is not None]


def _pieces(template: str) -> Iterator[tuple[str, str | None]]:
    for found in _PIECE.finditer(template):
        text = found.group()
        if text in ("{{", "}}"):
            yield text[0], None
        elif text in ("{", "}") or text == "{}":
            raise RefusedError(
                ErrorCode.INVALID_TEMPLATE, f"{template!r} has a brace that belongs to no place; write {{{{ or }}}}."
            )
        else:
            yield text, found.group(1)


def manifest_faults(manifest: Any, path: str, expression: Callable[[Any, str], None]) -> Iterator[tuple[str, str]]:
    """Yield path and message of every fault of an action's manifest.

    Args:
        manifest: what the schema holds.
        path: its path.
        expression: checks and reports an expression at a path.
    """
    if not isinstance(manifest, Sequence) or isinstance(manifest, str):
        yield path, "manifest is a list of {predicate, resource, to, confidence, each}."
        return
    for index, item in enumerate(manifest):
        at = f"{path}[{index}]"
        if not isinstance(item, Mapping) or not item.keys() >= {"predicate", "resource"}:
            yield at, "An item of a manifest has a predicate and a resource."
            continue
        for key in sorted(item.keys() - _KEYS):
            yield f"{at}.{key}", f"There is no {key!r} here."
        if item["predicate"] not in list(Predicate):
            yield f"{at}.predicate", f"The predicates are {', '.join(Predicate)}."
        if "to" in item and item["predicate"] != Predicate.RENAMES:
            yield f"{at}.to", "Only RENAMES has a target."
        if "each" in item:
            expression(item["each"], f"{at}.each")
        for key in item.keys() & {"resource", "to"}:
            yield from _text_faults(item[key], f"{at}.{key}", expression, in_each="each" in item)


def _text_faults(
    text: Any, path: str, expression: Callable[[Any, str], None], *, in_each: bool
) -> Iterator[tuple[str, str]]:
    if isinstance(text, Mapping):
        expression(text, path)
    elif not isinstance(text, str):
        yield path, "A resource is a text with {places}, or an expression."
    else:
        try:
            places = places_of(text)
        except RefusedError as refused:
            yield path, refused.message
            return
        for place in places:
            if not place.startswith(_EACH):
                expression({"kind": "get", "path": place}, path)
            elif not in_each:
                yield path, f"{{{place}}} names an element, but the item has no 'each'."


def compile_manifest(manifest: Sequence[Mapping[str, Any]]) -> tuple[ItemSpec, ...]:
    """Return the compiled manifest of an action without faults."""
    return tuple(
        ItemSpec(
            fixed={key: item[key] for key in ("predicate", "confidence") if key in item},
            texts={key: _compile_text(item[key]) for key in ("resource", "to") if key in item},
            each=compile_expression(item["each"]) if "each" in item else None,
        )
        for item in manifest
    )


def _compile_text(text: Any) -> Evaluate:
    if not isinstance(text, str):
        return compile_expression(text)
    pieces = [
        piece if path is None else compile_expression({"kind": "get", "path": path}) for piece, path in _pieces(text)
    ]
    return partial(_fill, text, pieces)


def _fill(template: str, pieces: Sequence[str | Evaluate], scope: Scope) -> str:
    filled = []
    for piece in pieces:
        value = piece if isinstance(piece, str) else piece(scope)
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise RefusedError(
                ErrorCode.INVALID_MANIFEST,
                f"A place in {template!r} would be filled with {value!r:.60}; only texts and whole numbers can be.",
            )
        filled.append(str(value))
    return "".join(filled)


def declared_scope(items: Sequence[ItemSpec], *, action: str, given: Any, view: SnapshotView) -> list[dict[str, Any]]:
    """Return the ``scope`` of an intent manifest for an input in a state.

    Args:
        items: the compiled manifest.
        action: the action's name.
        given: the intent's input.
        view: the state.

    Raises:
        RefusedError: ``INVALID_MANIFEST`` where a place has nothing to be filled with, or something is no text.
    """
    scope = Scope(view.data, computed=view.computed, input=given, context=EvaluationContext(action_id=action))
    try:
        return [rendered for item in items for rendered in _rendered(item, scope)]
    except ExpressionError as error:
        raise RefusedError(
            ErrorCode.INVALID_MANIFEST, f"The manifest of {action!r} cannot be evaluated: {error}."
        ) from None


def _rendered(item: ItemSpec, scope: Scope) -> Iterator[dict[str, Any]]:
    if item.each is None:
        yield _one(item, scope)
        return
    elements = item.each(scope)
    if elements is None:
        return  # what is not there has no elements
    if not isinstance(elements, Sequence) or isinstance(elements, str):
        raise RefusedError(
            ErrorCode.INVALID_MANIFEST, f"'each' of a manifest gives {elements!r:.60}, which is no array."
        )
    scope.spend(len(elements))
    for index, element in enumerate(elements):
        scope.item, scope.index, scope.array = element, index, elements
        yield _one(item, scope)
    scope.item = scope.index = scope.array = None


def _one(item: ItemSpec, scope: Scope) -> dict[str, Any]:
    rendered = dict(item.fixed)
    for key, evaluate in item.texts.items():
        rendered[key] = evaluate(scope)
        if not isinstance(rendered[key], str):
            raise RefusedError(
                ErrorCode.INVALID_MANIFEST, f"The {key} of a manifest's item would be {rendered[key]!r:.60}, no text."
            )
    return rendered
