"""Checks of values against a state model: whole values, and only the places that patches touched.

A check of a change starts from a value that is known to fit. It visits the touched places and the objects and arrays
above them; members that are the same nodes as before are not visited. Under alternatives (``anyOf``) it continues with
the one that accepted the earlier value, which is known from its JSON type, or remembered.
Source: IC-validate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from msgspec import Struct, field

from world.core.state_model.dialect import SchemaNode
from world.core.state_model.formats import FORMATS
from world.core.values import strict_equal
from world.model.immutable_json import FrozenDict, FrozenList
from world.model.patch import Patch
from world.model.paths import Segments, array_index, format_name, parse_path
from world.model.secrets.references import is_literal

__all__ = [
    "NEW",
    "Checker",
    "ModelFault",
    "Touched",
    "holds_secrets",
    "literal_paths",
    "places_of",
    "same_place",
    "shown_value",
]

NEW: Final = object()
"""The earlier value of a place that had none."""

_MAX_REMEMBERED: Final = 1_024  # alternatives that earlier values fitted
_CHEAP: Final = 16  # visits that checking an alternative again may cost
_SHARED: Final = 32  # minimum number of elements for which a look-up of earlier ones pays off
_NOUNS: Final = {
    "string": "a text", "number": "a finite number", "integer": "a whole number", "boolean": "true or false",
    "null": "null", "object": "an object", "array": "an array",
}  # fmt: skip


_KINDS: Final[Mapping[type, tuple[str, ...]]] = {
    str: ("string",), int: ("integer", "number"), bool: ("boolean",), type(None): ("null",),
    FrozenDict: ("object",), FrozenList: ("array",),
}  # fmt: skip
"""The JSON types of values, by their class; those of a float depend on the value."""


@dataclass(frozen=True, slots=True)
class ModelFault:
    """One fault of a value.

    Args:
        segments: place of the fault, from the root of the value.
        message: half a sentence.
        is_shape: whether the type, a name or a fixed value is wrong, and not a constraint.
    """

    segments: Segments
    message: str
    is_shape: bool = False

    @property
    def shown(self) -> str:
        """The place as the continuation of a path, with a dot in front of each name."""
        return "".join(f".{format_name(name)}" for name in self.segments)


class Touched(Struct):
    """A tree of the places that patches touched.

    Args:
        below: touched members and elements.
        is_whole: whether the value was replaced as a whole.
        is_removed: whether a patch removed it; elements after it have moved then.
        checked: the schema and the value of a place that was checked when it was set.
    """

    below: dict[str, Touched] = field(default_factory=dict)
    is_whole: bool = False
    is_removed: bool = False
    checked: tuple[SchemaNode, Any] | None = None

    def note(self, patch: Patch) -> None:
        """Add the places of a patch."""
        place = self._at(parse_path(patch.path))
        if patch.op == "merge" and isinstance(patch.value, Mapping) and patch.value:
            for name in patch.value:
                place._at((name,)).is_whole = True
        else:
            place.is_whole = True
            place.is_removed |= patch.op == "unset"

    def note_checked(self, segments: Segments, node: SchemaNode, value: Any) -> None:
        """Remember that the value that is set at a place fits its schema."""
        self._at(segments).checked = (node, value)

    def _at(self, segments: Segments) -> Touched:
        place = self
        for name in segments:
            below = place.below.get(name)
            if below is None:
                below = place.below[name] = Touched()
            place = below
        return place


_WHOLE: Final = Touched(is_whole=True)


class Checker:
    """Checks values against schemas; ``visited`` counts the schemas that were applied to a value.

    Args:
        is_state: whether members of the root whose names start with ``$`` belong to hosts and tools.
    """

    __slots__ = ("_fitted", "_is_state", "visited")

    def __init__(self, *, is_state: bool = False) -> None:
        """Create a checker that remembers nothing."""
        self._is_state = is_state
        self._fitted: dict[tuple[int, int], tuple[Any, int]] = {}
        self.visited = 0

    def faults(
        self, node: SchemaNode, value: Any, before: Any = NEW, touched: Touched = _WHOLE, at: Segments = ()
    ) -> Iterator[ModelFault]:
        """Yield the faults of a value.

        Args:
            node: the schema.
            value: frozen JSON.
            before: the earlier value of the place, which fits the schema; ``NEW`` without one.
            touched: the places below that differ from it.
            at: place of the value in messages.
        """
        checked = touched.checked
        if value is before or (checked is not None and checked[0] is node and checked[1] is value):
            return
        self.visited += 1
        if node.is_secret:
            if value is None or is_literal(value):
                yield ModelFault(at, "is secret: it must be a text with a reference, ${secret:NAME}", is_shape=True)
            return
        kinds = _KINDS.get(type(value)) or _kinds_of(value)
        if node.types is not None and node.types.isdisjoint(kinds):
            nouns = " or ".join(_NOUNS[name] for name in sorted(node.types))
            yield ModelFault(at, f"must be {nouns}, not {shown_value(value)}", is_shape=True)
            return
        if node.values is not None and not any(strict_equal(value, one) for one in node.values):
            several = ", ".join(map(shown_value, node.values[:20]))
            yield ModelFault(at, f"must be {'' if len(node.values) == 1 else 'one of '}{several}", is_shape=True)
            return
        if node.target is not None:
            yield from self.faults(node.target, value, before, touched, at)
        if node.options:
            yield from self._alternatives(node, value, before, touched, at)
        yield from self._inside(node, value, before, touched, at)

    def _inside(
        self, node: SchemaNode, value: Any, before: Any, touched: Touched, at: Segments
    ) -> Iterator[ModelFault]:
        """Yield the faults that the keywords of the value's own type find."""
        if type(value) is FrozenDict:
            yield from self._members(node, value, before, touched, at)
        elif type(value) is FrozenList:
            yield from self._elements(node, value, before, touched, at)
        elif type(value) is str:
            if node.sizes or node.pattern is not None or node.format is not None:
                yield from _text_faults(node, value, at)
        elif node.bounds and type(value) in (int, float):
            yield from _number_faults(node, value, at)

    def _members(
        self, node: SchemaNode, value: FrozenDict, before: Any, touched: Touched, at: Segments
    ) -> Iterator[ModelFault]:
        if node.sizes:
            yield from _size_faults(node, len(value), "Properties", "member", at)
        earlier: Mapping[str, Any] = before if type(before) is FrozenDict else {}
        is_all = touched.is_whole or type(before) is not FrozenDict
        for name in node.required:
            if name not in value and (is_all or name in touched.below):
                yield ModelFault((*at, name), "is required", is_shape=True)
        properties = node.properties or {}
        for name in value if is_all else touched.below:
            if name not in value or value[name] is earlier.get(name, NEW):
                continue
            if self._is_state and not at and name.startswith("$") and name not in properties:
                continue
            if node.names is not None and name not in earlier:
                for fault in self.faults(node.names, name, at=(*at, name)):
                    yield ModelFault(fault.segments, f"has a name that does not fit: it {fault.message}")
            inner = properties.get(name, node.rest)
            if inner is not None:
                below = _WHOLE if is_all else touched.below[name]
                yield from self.faults(inner, value[name], earlier.get(name, NEW), below, (*at, name))
            elif node.is_closed:
                yield ModelFault((*at, name), "is not a known field", is_shape=True)

    def _elements(
        self, node: SchemaNode, value: FrozenList, before: Any, touched: Touched, at: Segments
    ) -> Iterator[ModelFault]:
        if node.sizes:
            yield from _size_faults(node, len(value), "Items", "element", at)
        if node.is_complete and len(value) > len(node.prefix):
            yield ModelFault(at, f"must have at most {len(node.prefix)} elements, not {len(value)}")
        is_list = type(before) is FrozenList
        is_all = touched.is_whole or not is_list or any(one.is_removed for one in touched.below.values())
        shared: set[int] = set()
        if is_all and is_list and not node.prefix and len(before) >= _SHARED:
            shared = set(map(id, before))  # the elements live as long as ``before`` does, so their ids are theirs
        indexes: Iterable[int] = range(len(value)) if is_all else _indexes(touched, len(value))
        for index in indexes:
            inner = node.prefix[index] if index < len(node.prefix) else node.items
            item = value[index]
            earlier = before[index] if is_list and index < len(before) else NEW
            if inner is not None and item is not earlier and id(item) not in shared:
                below = _WHOLE if is_all else touched.below[str(index)]
                yield from self.faults(inner, item, earlier, below, (*at, str(index)))

    def _alternatives(
        self, node: SchemaNode, value: Any, before: Any, touched: Touched, at: Segments
    ) -> Iterator[ModelFault]:
        known = None if before is NEW else self._fitting(node, before)
        order = [*([] if known is None else [known]), *(one for one in range(len(node.options)) if one != known)]
        kinds, found = _kinds_of(value), []
        for number in order:
            option = node.options[number]
            types = _types_of(option)
            if types is not None and types.isdisjoint(kinds):
                continue
            start, places = (before, touched) if number == known else (NEW, _WHOLE)
            visited = self.visited
            fault = next(self.faults(option, value, start, places, at), None)
            if fault is None:
                if number == known or self.visited - visited > _CHEAP:
                    self._remember(node, value, number)
                return
            found.append(fault)
        if len(found) == 1:
            yield found[0]
        elif found:
            reasons = "; or ".join(
                f"{fault.shown[1:] if fault.segments else 'it'} {fault.message}" for fault in found[:4]
            )
            yield ModelFault(at, f"fits none of its {len(node.options)} alternatives: {reasons}")
        else:
            nouns = sorted({noun for option in node.options for noun in (_types_of(option) or ())})
            wanted = " or ".join(_NOUNS[noun] for noun in nouns)
            is_secret = any(one.is_secret for one in same_place(node))
            yield ModelFault(at, f"must be {wanted}{'' if is_secret else f', not {shown_value(value)}'}", is_shape=True)

    def _fitting(self, node: SchemaNode, before: Any) -> int | None:
        """Return the number of the alternative that an earlier value fits, where that is known."""
        remembered = self._fitted.get((id(node), id(before)))
        if remembered is not None and remembered[0] is before:
            return remembered[1]
        kinds = _kinds_of(before)
        fitting = [
            number for number, one in enumerate(node.options)
            if (types := _types_of(one)) is None or not types.isdisjoint(kinds)
        ]  # fmt: skip
        return fitting[0] if len(fitting) == 1 else None

    def _remember(self, node: SchemaNode, value: Any, number: int) -> None:
        if isinstance(value, (FrozenDict, FrozenList)):
            if len(self._fitted) >= _MAX_REMEMBERED:
                self._fitted.pop(next(iter(self._fitted)))
            self._fitted[id(node), id(value)] = (value, number)


def _indexes(touched: Touched, size: int) -> Iterator[int]:
    for name in touched.below:
        index = array_index(name)
        if index is not None and index < size:
            yield index


def _types_of(node: SchemaNode) -> frozenset[str] | None:
    """Return the JSON types that a schema may accept, None where any."""
    for _ in range(8):
        if node.types is not None or node.target is None:
            break
        node = node.target
    return frozenset({"string"}) if node.is_secret else node.types


def _kinds_of(value: Any) -> tuple[str, ...]:
    """Return the JSON types of a value; a whole number is an integer and a number."""
    if value is None:
        return ("null",)
    if isinstance(value, str):
        return ("string",)
    if isinstance(value, bool):
        return ("boolean",)
    if isinstance(value, int):
        return ("integer", "number")
    if isinstance(value, float):
        if not math.isfinite(value):
            return ()
        return ("integer", "number") if value.is_integer() else ("number",)
    return ("object",) if isinstance(value, dict) else ("array",) if isinstance(value, list) else ()


def _size_faults(node: SchemaNode, size: int, ending: str, noun: str, at: Segments) -> Iterator[ModelFault]:
    least, most = node.sizes.get(f"min{ending}"), node.sizes.get(f"max{ending}")
    if least is not None and size < least:
        yield ModelFault(at, f"must have at least {least} {noun}{'' if least == 1 else 's'}, not {size}")
    if most is not None and size > most:
        yield ModelFault(at, f"must have at most {most} {noun}{'' if most == 1 else 's'}, not {size}")


def _text_faults(node: SchemaNode, value: str, at: Segments) -> Iterator[ModelFault]:
    yield from _size_faults(node, len(value), "Length", "character", at)
    if node.pattern is not None and not node.pattern.matches(value):
        yield ModelFault(at, f"must match the pattern {node.pattern.source}, not {shown_value(value)}")
    if node.format is not None and not FORMATS[node.format][0](value):
        yield ModelFault(at, f"must be {FORMATS[node.format][1]}, not {shown_value(value)}")


def _number_faults(node: SchemaNode, value: int | float, at: Segments) -> Iterator[ModelFault]:
    for key, bound in node.bounds.items():
        words = None
        if key == "minimum" and value < bound:
            words = f"at least {bound}"
        elif key == "maximum" and value > bound:
            words = f"at most {bound}"
        elif key == "exclusiveMinimum" and value <= bound:
            words = f"more than {bound}"
        elif key == "exclusiveMaximum" and value >= bound:
            words = f"less than {bound}"
        elif key == "multipleOf" and Fraction(repr(value)) % Fraction(repr(bound)):
            words = f"a multiple of {bound}"
        if words is not None:
            yield ModelFault(at, f"must be {words}, not {shown_value(value)}")


def shown_value(value: Any) -> str:
    """Return how a message names a JSON value: in at most 80 characters."""
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    shown = "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)
    return shown if len(shown) <= 80 else f"{shown[:77]}..."


def same_place(node: SchemaNode) -> Iterator[SchemaNode]:
    """Yield a schema and those that it applies to the same value."""
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        one = waiting.pop()
        if id(one) not in seen:
            seen.add(id(one))
            waiting += [*one.options, *([] if one.target is None else [one.target])]
            yield one


def holds_secrets(node: SchemaNode) -> bool:
    """Return whether a schema or one inside it marks a secret."""
    seen: set[int] = set()
    waiting: list[SchemaNode | None] = [node]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        if one.is_secret:
            return True
        seen.add(id(one))
        waiting += [one.target, one.rest, one.items, *one.options, *one.prefix, *(one.properties or {}).values()]
    return False


def places_of(root: SchemaNode, segments: Segments) -> tuple[SchemaNode, ...]:
    """Return the schemas that may apply at a path, none for an unknown place."""
    found = [root]
    for name in segments:
        found = list({id(inner): inner for node in found for inner in _below(node, name)}.values())
    return tuple(found)


def _below(node: SchemaNode, name: str) -> Iterator[SchemaNode]:
    for one in same_place(node):
        says = one.types is not None or one.properties is not None or one.rest is not None or one.items is not None
        if one.is_secret or one.values is not None or ((one.options or one.target is not None) and not says):
            continue
        if one.types is None or "object" in one.types:
            if name in (one.properties or {}):
                yield (one.properties or {})[name]
            elif one.rest is not None or not one.is_closed:
                yield one.rest or _ANYTHING
        index = array_index(name) if one.types is None or "array" in one.types else None
        if index is not None and index < len(one.prefix):
            yield one.prefix[index]
        elif index is not None and (one.items is not None or not one.is_complete):
            yield one.items or _ANYTHING


_ANYTHING: Final = SchemaNode()


def literal_paths(node: SchemaNode, value: Any, path: str) -> Iterator[str]:
    """Yield the path of each literal in a secret place of a value."""
    seen = list(same_place(node))
    if any(one.is_secret for one in seen):
        if is_literal(value):
            yield path
        return
    if not isinstance(value, (dict, list)):
        return
    names = [(name, item) for name, item in value.items()] if isinstance(value, dict) else [
        (str(index), item) for index, item in enumerate(value)
    ]  # fmt: skip
    for name, item in names:
        found: list[str] = []
        for one in seen:
            for inner in _below(one, name):
                found += literal_paths(inner, item, f"{path}.{format_name(name)}")
        yield from dict.fromkeys(found)
