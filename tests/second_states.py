"""State models of the second implementation, made from docs/reference/state-model.md alone.

Patterns are those that Python's ``re`` reads alike once ``^`` and ``$`` are the ends of the text; others raise ``Bad``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.second_forms import Bad, number_of

DIALECT = "urn:worldprotocol:state-model:1"
SIMPLE = re.compile(r"(?:[^\\()\n]|\\[.\\^$*+?(){}\[\]|-]|\((?!\?)|\((?=\?:)|\))*")
CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|[+-](\d\d):(\d\d))", re.ASCII)
SECRET = re.compile(r"(?<!\$)\$\{secret:[A-Za-z_][A-Za-z0-9_.-]{0,127}\}")
SIZES = {"Length": str, "Items": list, "Properties": dict}
BOUNDS = {
    "minimum": lambda value, bound: value >= bound,
    "maximum": lambda value, bound: value <= bound,
    "exclusiveMinimum": lambda value, bound: value > bound,
    "exclusiveMaximum": lambda value, bound: value < bound,
    "multipleOf": lambda value, bound: exactly(value) % exactly(bound) == 0,
}

Schema = Mapping[str, Any]


def state_fits(schema: Schema, data: Mapping[str, Any]) -> bool:
    """Tell whether data fits the state of a domain's schema; one without a model accepts everything."""
    state = schema["state"]
    if "dialect" not in state:
        return True
    if state["dialect"] != DIALECT:
        raise Bad("an unknown dialect")
    return accepts(state["schema"], data, state["schema"].get("$defs", {}), is_state=True)


def input_fits(spec: Schema | None, value: Any) -> bool:
    """Tell whether an input fits the model of its action."""
    if spec is None or "dialect" not in spec or (value is None and not spec.get("required")):
        return True
    return accepts(spec["schema"], value, spec["schema"].get("$defs", {}))


def accepts(schema: Schema, value: Any, named: Schema, *, is_state: bool = False) -> bool:
    """Tell whether a schema accepts a value; ``named`` are the definitions."""
    if schema.get("secret"):
        return value == "" or (isinstance(value, str) and SECRET.search(value) is not None)
    if "type" in schema:
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_of(value, kind) for kind in kinds):
            return False
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is not None and not any(equal(value, one) for one in allowed):
        return False
    if "$ref" in schema and not accepts(named[schema["$ref"].removeprefix("#/$defs/")], value, named):
        return False
    if "anyOf" in schema and not any(accepts(one, value, named) for one in schema["anyOf"]):
        return False
    if not has_size(schema, value):
        return False
    if isinstance(value, dict):
        return members_fit(schema, value, named, is_state=is_state)
    if isinstance(value, list):
        return elements_fit(schema, value, named)
    if isinstance(value, str):
        return is_matched(schema.get("pattern"), value) and is_formatted(schema.get("format"), value)
    if is_number(value):
        return all(holds(value, schema[name]) for name, holds in BOUNDS.items() if name in schema)
    return True


def members_fit(schema: Schema, value: dict[str, Any], named: Schema, *, is_state: bool) -> bool:
    """Tell whether the members of an object fit."""
    properties, rest = schema.get("properties", {}), schema.get("additionalProperties", True)
    if any(name not in value for name in schema.get("required", ())):
        return False
    for name, member in value.items():
        if is_state and name.startswith("$") and name not in properties:
            continue
        if "propertyNames" in schema and not accepts(schema["propertyNames"], name, named):
            return False
        inner = properties.get(name, rest)
        if inner is False or (inner is not True and not accepts(inner, member, named)):
            return False
    return True


def elements_fit(schema: Schema, value: list[Any], named: Schema) -> bool:
    """Tell whether the elements of an array fit."""
    prefix, items = schema.get("prefixItems", []), schema.get("items", True)
    for at, element in enumerate(value):
        inner = prefix[at] if at < len(prefix) else items
        if inner is False or (inner is not True and not accepts(inner, element, named)):
            return False
    return True


def is_number(value: Any) -> bool:
    """Tell whether a value is a number of JSON."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_of(value: Any, kind: str) -> bool:
    """Tell whether a value is of a type."""
    return {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "string": isinstance(value, str),
        "number": is_number(value),
        "integer": is_number(value) and exactly(value).denominator == 1,
        "boolean": isinstance(value, bool),
        "null": value is None,
    }[kind]


def exactly(value: int | float) -> Fraction:
    """Return the number that canonical JSON writes."""
    return Fraction(Decimal(number_of(value)))


def equal(left: Any, right: Any) -> bool:
    """Tell whether two values of JSON are equal."""
    if is_number(left) and is_number(right):
        return bool(left == right)
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(equal(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def has_size(schema: Schema, value: Any) -> bool:
    """Tell whether the size of a text, an array or an object is within its bounds."""
    for ending, kind in SIZES.items():
        if isinstance(value, kind):
            least, most = schema.get(f"min{ending}", 0), schema.get(f"max{ending}")
            return least <= len(value) and (most is None or len(value) <= most)
    return True


def is_matched(pattern: str | None, text: str) -> bool:
    """Tell whether a pattern is found in a text."""
    if pattern is None:
        return True
    if not SIMPLE.fullmatch(pattern):
        raise Bad("a pattern that Python may read otherwise")
    ends = re.sub(r"(\\.|\[(?:\\.|[^\]])*\])|\$", lambda found: found[1] or r"\Z", pattern)
    return re.search(ends, text) is not None


def is_formatted(name: str | None, text: str) -> bool:
    """Tell whether a text has a format."""
    if name is None:
        return True
    if name == "uuid":
        return re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", text) is not None
    day = text if name == "date" else text[:10]
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", day, re.ASCII):
        return False
    try:
        date(*map(int, day.split("-")))
    except ValueError:
        return False
    if name == "date":
        return True
    clock = CLOCK.fullmatch(text[11:])
    if text[10:11] not in ("T", "t") or clock is None:
        return False
    most = (23, 59, 59, 23, 59)
    return all(part is None or int(part) <= last for part, last in zip(clock.groups(), most, strict=True))


def unfit_worlds(events: Iterable[Mapping[str, Any]], data_of: Mapping[str, Any]) -> list[str]:
    """Return the ids of the worlds whose data does not fit the schema in force.

    Args:
        events: the events of a log, in order.
        data_of: the data of each world, by its id.
    """
    unfit, schemas = list[str](), dict[str, Schema]()
    for event in events:
        state = event["state"]
        if event["topic"] == "domain.adopted":
            schemas[state["schemaHash"]] = state["schema"]
        elif event["topic"] == "world.sealed" and not state_fits(
            schemas[state["schemaHash"]], data_of[state["worldId"]]
        ):
            unfit.append(state["worldId"])
    return unfit
