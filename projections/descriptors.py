"""Action descriptors: the actions of a schema with input and availability.

A descriptor is made from a domain or read from its wire form (intent specification 3.4). Its expression is checked and
compiled once, when the descriptor is made. Used by catalogs and their callers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import NoneType
from typing import Any, ClassVar

from projections.input_schema import schema_of_field, schema_of_model
from world.core import Domain, DomainSchema
from world.core.availability import AvailabilityContext, CompiledPredicate, LocalPredicate, read_predicate
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import utf16_key
from world.model.immutable_json import FrozenDict, freeze
from world.model.member_types import Identifier, Json, Text
from world.model.record import WireForm
from world.model.value import Value

__all__ = ["ActionDescriptor", "descriptors_of", "missing_function"]


class _Wire(Value, title="ActionDescriptor"):
    """A descriptor in its wire form."""

    type: Identifier
    label: Text | None = None
    description: Text | None = None
    input_schema: Json = None
    available: Json = None


@dataclass(frozen=True, slots=True)
class ActionDescriptor(WireForm):
    """One action of a schema as input of a catalog (INT-3.4).

    Args:
        type: the intent type.
        label: a short name for people.
        description: for people and models.
        input_schema: JSON Schema of the input; None if unknown.
        available: an availability expression, a ``LocalPredicate``, or None for always.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a type, a schema or an expression that is not JSON; ``INVALID_VALUE`` for a
            schema that is not a JSON Schema.
    """

    type: str
    label: str | None = None
    description: str | None = None
    input_schema: Any = None
    available: Any = None
    predicate: CompiledPredicate | None = field(init=False, repr=False, compare=False)
    sort_key: Any = field(init=False, repr=False, compare=False)
    WIRE: ClassVar = "type label? description? inputSchema=input_schema? available=portable?"

    @property
    def portable(self) -> Any:
        """The expression that it is available under, or None.

        Raises:
            RefusedError: for a function of this process.
        """
        if isinstance(self.available, LocalPredicate):
            raise _not_portable(self.type)
        return self.available

    def __post_init__(self) -> None:
        predicate = None
        if self.available is not None and not isinstance(self.available, LocalPredicate):
            object.__setattr__(self, "available", freeze(self.available, "$.available"))
            predicate = read_predicate(self.available)
        object.__setattr__(self, "input_schema", freeze(self.input_schema, "$.inputSchema"))
        if not isinstance(self.input_schema, (dict, bool, NoneType)):
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"The input schema of {self.type!r} must be a JSON Schema: an object or a boolean.",
            )
        object.__setattr__(self, "predicate", predicate)
        object.__setattr__(self, "sort_key", utf16_key(freeze(self.type, "$.type")))

    @classmethod
    def read(cls, given: Any, path: str = "$") -> ActionDescriptor:
        """Read a descriptor from its wire form.

        In the same process ``available`` may be ``{"kind": "fn", "evaluate": function}``.

        Raises:
            RefusedError: ``INVALID_VALUE`` with the faulty fields; ``LOCAL_PREDICATE`` where the function is missing.
        """
        available = given.get("available") if isinstance(given, Mapping) else None
        if not isinstance(available, Mapping) or available.get("kind") != "fn":
            wire = _Wire.read(given, path)
            return cls(wire.type, wire.label, wire.description, wire.input_schema, wire.available)
        wire = _Wire.read({name: value for name, value in given.items() if name != "available"}, path)
        evaluate = available.get("evaluate")
        if not callable(evaluate):
            raise _not_portable(wire.type)
        local = LocalPredicate(evaluate, _name_of(evaluate))
        return cls(wire.type, wire.label, wire.description, wire.input_schema, local)


def _not_portable(action: str) -> RefusedError:
    return RefusedError(
        ErrorCode.LOCAL_PREDICATE,
        f"The predicate of {action!r} is a Python function, which cannot be sent to another process; send an "
        "availability expression, or the catalog itself.",
        action=action,
    )


def _name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))


def missing_function(_context: AvailabilityContext) -> None:
    """Placeholder of a local predicate whose function is missing; decides nothing."""


def descriptors_of(
    domain: Domain | DomainSchema, local: Mapping[str, LocalPredicate] = FrozenDict()
) -> tuple[ActionDescriptor, ...]:
    """Return the descriptors of all actions, in the canonical order of the schema.

    Args:
        domain: a domain with its Python functions, or a schema, which lacks the constraints of pydantic models.
        local: predicates that are Python functions, by action; used with a schema only.
    """
    schema, functions = (domain.schema, domain) if isinstance(domain, Domain) else (domain, None)
    descriptors = []
    for name, action in schema.actions.items():
        model = None if functions is None else functions.input_model(name)
        taken = action.spec.get("input")
        if model is not None:
            shown: Any = schema_of_model(model)
        else:
            shown = None if taken is None else schema_of_field(taken)
        function = local.get(name) if functions is None else functions.local_predicate(name)
        texts = action.spec.get("label"), action.spec.get("description")
        descriptors.append(ActionDescriptor(name, *texts, shown, action.available if function is None else function))
    return tuple(descriptors)
