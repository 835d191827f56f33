"""Encoding of captured values of functions and rules as deterministic JSON.

Two functions with equal text and different values are different functions, so all values are encoded:
closures, defaults, the fields of objects and of the objects in them. For a rule, a value without such a form is
refused, since it could change under an adopted policy; for other code its type represents it.
Source: design section 6.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import logging
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from datetime import date, time, timedelta, tzinfo
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    FunctionType,
    GenericAlias,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    UnionType,
)
from typing import Any, Final

import msgspec
from pydantic import BaseModel

from world.code.references import FILE_MODULE_PREFIX
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import FrozenDict, FrozenList, freeze
from world.model.record import Record

MAX_DEPTH: Final = 32
"""Maximum depth of the encoded values of a rule."""

MAX_VALUES: Final = 1_000_000
"""Maximum number of encoded values of one rule."""

_MOMENTS: Final = (date, time, timedelta, tzinfo)
_COMPLETE_REPRS: Final = (bytes, complex, *_MOMENTS, Decimal, Fraction, range, GenericAlias, UnionType)
_PLAIN: Final = (dict, list, tuple, set, frozenset, FrozenDict, FrozenList, MappingProxyType)
_LOCKS: Final = frozenset({"lock", "RLock"})
_LOCAL: Final = "<locals>"


class Telling:
    """Bounded encoder of the captured values of one rule.

    Args:
        of_code: encodes a function or a callable object with this encoder.
    """

    def __init__(self, of_code: Callable[[Any, Telling], Any]) -> None:
        """Create an encoder without encoded values."""
        self._of_code = of_code
        self._names: list[str] = []
        self._inside: list[int] = []
        self._count = 0

    # Captured values

    def bound(self, function: FunctionType) -> dict[str, Any]:
        """Return closure, defaults and own attributes of a function, by name."""
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
        held = {name: self._cell(name, cell) for name, cell in cells}
        parameters = inspect.signature(function, follow_wrapped=False).parameters.values()
        defaults = {one.name: self.value(one.name, one.default) for one in parameters if one.default is not one.empty}
        own = {name: self.value(name, value) for name, value in vars(function).items() if name != "__wrapped__"}
        return own | held | defaults

    def fields(self, subject: Any) -> dict[str, Any]:
        """Return the fields of an object by name, or the members of a local class."""
        if isinstance(subject, Record):
            found = msgspec.structs.asdict(subject)
        elif isinstance(subject, BaseModel):
            found = dict(subject) | (subject.__pydantic_private__ or {})
        else:
            found = dict(_slots(subject)) | dict(getattr(subject, "__dict__", None) or {})
        if dataclasses.is_dataclass(subject):
            names = [field.name for field in dataclasses.fields(subject) if hasattr(subject, field.name)]
            found = {name: getattr(subject, name) for name in names} | found
        rendered = {name: self.value(name, value) for name, value in found.items()}
        local = self._local_classes(type(subject))
        return rendered | {"class": local} if local else rendered

    def _cell(self, name: str, cell: Any) -> Any:
        try:
            value = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            return None
        return self.value(name, value)

    def _local_classes(self, kind: type) -> dict[str, Any]:
        """Return the members of classes that a function made."""
        local = [one for one in kind.__mro__ if _LOCAL in one.__qualname__]
        return {one.__qualname__: held for one in local if (held := self._held_by(one))}

    def _held_by(self, kind: type) -> dict[str, Any]:
        held: dict[str, Any] = {}
        for name, value in vars(kind).items():
            for function in _functions(value):
                held |= {f"{name}.{inner}": rendered for inner, rendered in self.bound(function).items()}
            is_data = not (name.startswith("__") or name == "_abc_impl" or hasattr(type(value), "__get__"))
            if is_data and not issubclass(kind, Enum):
                held[name] = self.value(name, value)
        return held

    # Names

    def name_of(self, kind: type) -> str:
        """Return the encoding of a class."""
        return qualified(kind)

    def type_of(self, value: Any) -> str:
        """Return the encoding of the class of a value."""
        return self.name_of(type(value))

    # Values

    def value(self, name: str, value: Any) -> Any:
        """Return a value as JSON.

        Args:
            name: its path from the encoded object.
            value: any value.

        Raises:
            RefusedError: ``INVALID_RULE`` for one that cannot be represented, or that is beyond the limits.
        """
        if value is None or type(value) in (bool, int, float, str):
            self._count += 1
            return _plain_text(value)
        with self._within(name, value) as above:
            return {"again": above} if above else self._compound(value)

    @contextmanager
    def _within(self, name: str, value: Any) -> Iterator[int]:
        """Enter a value; yield its recursion level, else 0."""
        self._names.append(name)
        self._count += 1
        try:
            if len(self._names) > MAX_DEPTH or self._count > MAX_VALUES:
                limits = f"{MAX_DEPTH} levels, {MAX_VALUES:,} values"
                raise self._refused(f"holds more than can be represented of a rule: {limits}", value)
            above = len(self._inside) - self._inside.index(id(value)) if id(value) in self._inside else 0
            self._inside.append(id(value))
            try:
                yield above
            finally:
                self._inside.pop()
        finally:
            self._names.pop()

    def _refused(self, why: str, value: Any) -> RefusedError:
        at = ".".join(self._names)
        return RefusedError(
            ErrorCode.INVALID_RULE,
            f"What the rule was made with {why}, at {at:.200} (a {type(value).__qualname__}). A rule's hash covers all "
            "its values, so give it plain data, or objects of it, in place of that.",
            at=at,
        )

    def _compound(self, value: Any) -> Any:
        try:
            for tell in (self._known, self._made_of_code):
                rendered = tell(value)
                if rendered is not None:
                    return rendered
            return self._object(value)
        except RefusedError:
            raise
        except Exception:  # noqa: BLE001 - a foreign class may raise anything
            raise self._refused("cannot be represented", value) from None

    def _known(self, value: Any) -> Any:
        if type(value) in _PLAIN or (isinstance(value, tuple) and hasattr(value, "_fields")):
            return self._items(value)
        if isinstance(value, Enum):
            return {"member": f"{self.type_of(value)}.{value.name}", "value": self.value("value", value.value)}
        if isinstance(value, PurePath):
            return str(value)
        if _has_complete_repr(type(value)):
            return repr(value)
        if isinstance(value, re.Pattern):
            return {"pattern": self.value("pattern", value.pattern), "flags": int(value.flags)}
        if isinstance(value, ModuleType):
            return module_name(value.__name__, value)
        if isinstance(value, logging.Logger):
            return {"logger": value.name}
        return self.type_of(value) if _is_without_content(type(value)) else None

    def _items(self, value: Any) -> list[Any]:
        if isinstance(value, Mapping):
            pairs = [[self.value("key", key), self.value(f"{key!s:.40}", item)] for key, item in value.items()]
            return sorted(pairs, key=canonical_bytes)
        rendered = [self.value(str(at), item) for at, item in enumerate(value)]
        return sorted(rendered, key=canonical_bytes) if isinstance(value, AbstractSet) else rendered

    def _made_of_code(self, value: Any) -> Any:
        if isinstance(value, type):
            local = self._local_classes(value)
            return {"type": self.name_of(value), "class": local} if local else self.name_of(value)
        if isinstance(value, (BuiltinFunctionType, MethodWrapperType)):
            on = value.__self__
            is_free = on is None or isinstance(on, (ModuleType, type))
            return qualified(value) if is_free else {"of": value.__name__, "on": self.value("__self__", on)}
        if isinstance(value, functools.partial):
            made_with = {"of": value.func, "with": value.args, "and": value.keywords}
            return {name: self.value(name, part) for name, part in made_with.items()}
        if isinstance(value, MethodType):
            return {"of": self.value("__func__", value.__func__), "on": self.value("__self__", value.__self__)}
        is_wrapper = inspect.getattr_static(value, "__wrapped__", None) is not None
        inner = getattr(value, "__wrapped__", None) if is_wrapper else None
        called = (value, inner, getattr(type(value), "__call__", None))  # noqa: B004
        return self._of_code(value, self) if any(isinstance(one, FunctionType) for one in called) else None

    def _object(self, value: Any) -> dict[str, Any]:
        """Encode an object by its fields, or by its pickled state."""
        if isinstance(value, (BaseModel, Record)) or dataclasses.is_dataclass(value):
            return {"type": self.type_of(value), "fields": self.fields(value)}
        reduced = value.__reduce_ex__(4)
        rendered: dict[str, Any] = {"type": self.type_of(value)}
        if isinstance(reduced, str):
            return rendered | {"name": reduced}
        maker, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
        is_plain = _reduces_plainly(type(value))
        if not is_plain or len(arguments) > 1:
            rendered["made"] = [getattr(maker, "__qualname__", None), self._each("__reduce__", arguments)]
        if fields := self.fields(value):
            rendered["fields"] = fields
        if not is_plain and state is not None:
            rendered["state"] = self.value("__reduce__", state)
        if items is not None:
            rendered["items"] = self._each("items", items)
        if pairs is not None:
            rendered["pairs"] = sorted((self._each("items", pair) for pair in pairs), key=canonical_bytes)
        if not is_plain and isinstance(value, (AbstractSet, Mapping)):  # pickle keeps them in the order of hashes
            rendered = {
                "type": self.type_of(value),
                "fields": fields,
                "items": self._items(value),
                "state": rendered.get("state"),
            }
            if isinstance(value, defaultdict):
                rendered["default"] = self.value("default_factory", value.default_factory)
        return rendered

    def _each(self, name: str, values: Any) -> list[Any]:
        return [self.value(f"{name}[{at}]", one) for at, one in enumerate(values)]


def _plain_text(value: Any) -> Any:
    try:
        return freeze(value)
    except RefusedError:
        return repr(value).encode("utf-8", "backslashreplace").decode()


def _slots(subject: Any) -> Iterator[tuple[str, Any]]:
    """Yield the values of slots of Python classes; other members may be addresses."""
    for kind in type(subject).__mro__:
        named = vars(kind).get("__slots__", ())
        for name in (named,) if isinstance(named, str) else tuple(named):
            is_private = name.startswith("__") and not name.endswith("__")
            slot = vars(kind).get(f"_{kind.__name__.lstrip('_')}{name}" if is_private else name)
            if isinstance(slot, MemberDescriptorType):
                try:
                    yield name, slot.__get__(subject)
                except AttributeError:  # it is empty
                    continue


def _functions(held: Any) -> Iterator[FunctionType]:
    """Yield the functions of a class member."""
    parts = (held.fget, held.fset, held.fdel) if isinstance(held, property) else (getattr(held, "__func__", held),)
    for part in parts:
        if isinstance(part, FunctionType):
            yield part


def _reduces_plainly(kind: type) -> bool:
    """Return whether the pickled state of an object is its fields."""
    return all(getattr(kind, name) is getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))


def _has_complete_repr(kind: type) -> bool:
    """Return whether ``repr`` is complete; does not import ``uuid``."""
    is_uuid = any((one.__module__, one.__name__) == ("uuid", "UUID") for one in kind.__mro__)
    return (is_uuid or issubclass(kind, _COMPLETE_REPRS)) and getattr(kind, "__repr__", None) is not object.__repr__


def _is_without_content(kind: type) -> bool:
    return kind is object or (kind.__module__ == "_thread" and kind.__name__ in _LOCKS)


def qualified(named: Any) -> str:
    """Return the name of a class or a function, with its module."""
    module = named.__module__ or ""
    return f"{module_name(module, sys.modules.get(module))}.{named.__qualname__}"


def module_name(name: str, module: ModuleType | None) -> str:
    """Return a module's name, or the file name of one loaded from a file."""
    path = getattr(module, "__file__", None)
    return PurePath(path).name if path and name.startswith(FILE_MODULE_PREFIX) else name


def code_held(function: FunctionType) -> Iterator[Any]:
    """Yield the functions in a foreign function's closure, such as a decorated one."""
    for cell in function.__closure__ or ():
        try:
            held = cell.cell_contents
        except ValueError:  # a name that is not bound yet
            continue
        if isinstance(held, (FunctionType, MethodType, functools.partial)) or hasattr(held, "__wrapped__"):
            yield held


def code_in(value: Any) -> Iterator[Any]:
    """Yield the functions and classes in a container."""
    items = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, (dict, list, tuple, set, frozenset))
        else ()
    )
    yield from (one for one in list(items) if isinstance(one, (FunctionType, type)))
