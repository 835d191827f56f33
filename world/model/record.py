"""Base class of the values that events embed: immutable structs with one wire form.

The log codec decodes a record from an event directly; ``Record.read`` reads one from a caller and names every invalid
member. JSON inside of a record is frozen when the record is created, whichever way that happens.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Self, get_args, get_origin, get_type_hints

import msgspec

from world.model.immutable_json import MAX_SAFE_INTEGER, FrozenDict, FrozenList, freeze
from world.model.short_repr import one_line

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

__all__ = ["Record", "freeze_member", "is_plain", "members", "to_wire"]

_READY = frozenset({bool, type(None), FrozenDict, FrozenList})
"""Types of JSON values that are frozen already."""


class Record(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Immutable value with camelCase members; unknown members are refused unless a subclass allows them."""

    def __repr__(self) -> str:
        return one_line(super().__repr__())

    @classmethod
    def read(cls, data: Any, path: str = "$") -> Self:
        """Return the value described by ``data`` (wire form or an instance).

        Args:
            data: the wire form, or an instance.
            path: path of the value in error messages.

        Raises:
            RefusedError: ``INVALID_VALUE``; the message and ``details["faults"]`` give the path of each invalid member.
        """
        try:
            value: Self = _adapter(cls).validate_python(data)
        except ValueError as error:  # pydantic's, whose import is left to the adapter
            raise _refused(error, cls, path) from None
        return value

    @classmethod
    def from_wire(cls, wire: Any) -> Self:
        """Return the value of a wire form that ``to_wire`` returned.

        Raises:
            msgspec.ValidationError: for a member that is missing or of the wrong type.
        """
        return msgspec.convert(wire, cls)

    def to_wire(self) -> dict[str, Any]:
        """Return the camelCase wire form; absent optional members are left out."""
        return {
            name: value if not converts else value.to_wire() if isinstance(value, Record) else to_wire(value)
            for name, attribute, converts in members(type(self))
            if (value := getattr(self, attribute)) is not None
        }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the strict schema of the wire form, so that pydantic models can have records as members."""
        from pydantic_core import core_schema

        hints = get_type_hints(cls, include_extras=True)
        schemas = {
            one.encode_name: core_schema.typed_dict_field(
                handler.generate_schema(hints[one.name]), required=one.required
            )
            for one in msgspec.structs.fields(cls)
        }
        inner = core_schema.typed_dict_schema(
            schemas,
            extra_behavior="forbid" if cls.__struct_config__.forbid_unknown_fields else "ignore",
            strict=True,
            config=core_schema.CoreConfig(strict=True, hide_input_in_errors=True),
        )
        shown = core_schema.plain_serializer_function_ser_schema(to_wire)
        return core_schema.no_info_wrap_validator_function(_reader(cls), inner, serialization=shown)


def _reader(kind: type[Record]) -> Callable[[Any, Callable[[Any], Any]], Record]:
    names = {name: attribute for name, attribute, _ in members(kind)}

    def read(value: Any, checked: Callable[[Any], Any]) -> Record:
        if isinstance(value, kind):
            return value
        return kind(**{names[name]: member for name, member in checked(value).items() if name in names})

    return read


@cache
def _adapter(kind: type[Record]) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _refused(error: ValueError, kind: type[Record], path: str) -> Exception:
    from pydantic import ValidationError

    from world.model.value import refused_value

    return refused_value(error, what=kind.__name__, path=path) if isinstance(error, ValidationError) else error


@cache
def members(kind: type[msgspec.Struct]) -> tuple[tuple[str, str, bool], ...]:
    """Return wire name and attribute of each member, and whether ``to_wire`` converts its values."""
    return tuple((one.encode_name, one.name, _converts(one.type)) for one in msgspec.structs.fields(kind))


def _converts(kind: Any) -> bool:
    """Return whether values of a type are records or sequences, or may be."""
    if isinstance(kind, type):
        return issubclass(kind, Record)
    return get_origin(kind) in (list, tuple) or any(map(_converts, get_args(kind)))


@cache
def is_plain(kind: Any) -> bool:
    """Return whether msgspec writes values of a type as their wire form.

    It does so with JSON, with numbers and texts, and with records without a wire form of their own that are defined
    with ``omit_defaults``, so that it leaves absent members out.
    """
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return all(map(is_plain, get_args(kind)))
    if not kind.__struct_config__.omit_defaults or getattr(kind, "to_wire", Record.to_wire) is not Record.to_wire:
        return False
    return all(is_plain(one.type) and (one.required or one.default is None) for one in msgspec.structs.fields(kind))


def to_wire(value: Any) -> Any:
    """Return the wire form of a member: of a record, of a sequence, or JSON itself."""
    if isinstance(value, Record):
        return value.to_wire()
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], Record):
        return [one.to_wire() for one in value]
    return list(value) if type(value) is tuple else value


def freeze_member(record: msgspec.Struct, name: str) -> None:
    """Freeze a JSON member of a record under construction.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a value that is not canonical JSON.
    """
    value = getattr(record, name)
    kind = type(value)
    is_ready = (
        kind in _READY
        or (kind is str and value.isascii())
        or (kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER)
    )
    if not is_ready:
        msgspec.structs.force_setattr(record, name, freeze(value))
