"""Base classes of the values that events embed and answers are made of: structs with one rule for their wire form.

The log codec decodes a record from an event directly; ``Record.read`` reads one from a caller and names every invalid
member. JSON inside of a record is frozen when the record is created, whichever way that happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, get_args, get_origin, get_type_hints

import msgspec

from world.model.immutable_json import MAX_SAFE_INTEGER, FrozenDict, FrozenList, freeze
from world.model.short_repr import one_line

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, TypeAdapter
    from pydantic_core import CoreSchema

__all__ = ["Record", "Shown", "WireForm", "freeze_member", "is_plain", "members", "to_wire"]

_READY = frozenset({bool, type(None), FrozenDict, FrozenList})
"""Types of JSON values that are frozen already."""

_Special: TypeAlias = "tuple[str | None, tuple[Any, ...]]"
_Member: TypeAlias = "tuple[str, str, Any, bool, _Special | None, bool]"
"""Name in JSON; attribute; the value that is left out, and whether an equal one is; in place of these the attribute
that decides with its values, or None with the attributes that lead on; whether the value is converted."""


class Shown:
    """Condition under which a field is in the wire form, in place of the one that its default states.

    Args:
        member: the attribute that decides; without it the field is always there.
        values: those of its values with which the field is there.
        unless: value of the field with which it is left out nevertheless.
    """

    def __init__(self, member: str | None = None, *values: Any, unless: Any = msgspec.UNSET) -> None:
        self.member, self.values, self.unless = member, values, unless


class WireForm:
    """Rule for wire forms: that of a struct is an object of JSON with its public fields, in their order.

    A field that is None is left out. Where the struct is defined with ``omit_defaults``, each one that equals its
    default is, and no other. ``SHOWN`` has other conditions, such as ``{"scope": Shown("verdict", "approve")}``.
    ``WIRE`` lists the members where they are not the fields, or where the class is not a struct. Of
    ``"count at=sealed.at by? *facts"`` the first is a field or property, the second an attribute of one under another
    name, the third a property that is left out where it is None, and the fourth an object whose members are taken.
    """

    __slots__ = ()
    WIRE: ClassVar[str] = ""
    SHOWN: ClassVar[Mapping[str, Shown]] = {}

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form; values inside of it are shared."""
        wire: dict[str, Any] = {}
        for name, attribute, absent, compares, special, converts in _members_shown(type(self)):  # type: ignore[arg-type]
            value = getattr(self, attribute)
            if special is None:
                if value is absent or (compares and value == absent):
                    continue
            elif special[0] is not None:
                if value is absent or getattr(self, special[0]) not in special[1]:
                    continue
            else:
                for step in special[1]:
                    value = None if value is None else getattr(value, step)
                if value is absent:
                    continue
                if not name:
                    wire |= to_wire(value)
                    continue
            if converts and value is not None:
                value = value.to_wire() if isinstance(value, WireForm) else to_wire(value)
            wire[name] = value
        return wire


class Record(WireForm, msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """Immutable value; unknown members are refused unless a subclass allows them."""

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


@cache
def _members_shown(kind: Any) -> tuple[_Member, ...]:
    return tuple(_listed(kind) if kind.WIRE else _fields_shown(kind))


def _listed(kind: Any) -> Iterator[_Member]:
    fields = {one[1]: one for one in _fields_shown(kind)} if issubclass(kind, msgspec.Struct) else {}
    for entry in kind.WIRE.split():
        name, _, path = entry.removesuffix("?").rpartition("=")
        attribute, *rest = path.split(".")
        if entry[0] == "*":
            name, attribute = "", attribute.removeprefix("*")
        elif not name:
            name = fields[attribute][0] if attribute in fields else _camel(attribute)
        if attribute in fields and name and not rest and entry[-1] != "?":
            yield name, *fields[attribute][1:]
        else:
            absent = None if entry[-1] == "?" else msgspec.UNSET
            yield name, attribute, absent, False, (None, tuple(rest)) if rest or not name else None, True


def _fields_shown(kind: Any) -> Iterator[_Member]:
    """Yield the public fields as members of the wire form."""
    leaves_out_defaults = kind.__struct_config__.omit_defaults
    for one in msgspec.structs.fields(kind):
        if one.name.startswith("_"):
            continue
        condition = kind.SHOWN.get(one.name)
        absent: Any = msgspec.UNSET if one.required and leaves_out_defaults else None
        if condition is not None:
            absent = condition.unless
        elif leaves_out_defaults and not one.required:
            absent = one.default if one.default_factory is msgspec.NODEFAULT else one.default_factory()
        special = (condition.member, condition.values) if condition is not None and condition.member else None
        compares = absent is not None and absent is not msgspec.UNSET
        yield one.encode_name, one.name, absent, compares, special, _converts(one.type)


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def _converts(kind: Any) -> bool:
    """Return whether values of a type have a wire form of their own or are sequences, or may be."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return hasattr(kind, "to_wire")
    return get_origin(kind) in (list, tuple) or any(map(_converts, get_args(kind)))


@cache
def is_plain(kind: Any) -> bool:
    """Return whether msgspec writes values of a type as their wire form.

    It does so with JSON, with numbers and texts, and with records that are defined with ``omit_defaults`` and say
    nothing else about their wire form, so that it leaves absent members out.
    """
    if not isinstance(kind, type) or not issubclass(kind, msgspec.Struct):
        return all(map(is_plain, get_args(kind)))
    if not kind.__struct_config__.omit_defaults or getattr(kind, "to_wire", Record.to_wire) is not Record.to_wire:
        return False
    if getattr(kind, "WIRE", "") or getattr(kind, "SHOWN", {}):
        return False
    return all(is_plain(one.type) and (one.required or one.default is None) for one in msgspec.structs.fields(kind))


def to_wire(value: Any) -> Any:
    """Return the wire form of a value: of what has one, of what is in a sequence or an object, or JSON itself."""
    if hasattr(value, "to_wire"):
        return value.to_wire()
    if type(value) is dict:
        return {name: to_wire(one) for name, one in value.items()}
    if isinstance(value, (tuple, list)) and value and hasattr(value[0], "to_wire"):
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
