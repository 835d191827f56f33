"""Frozen instances of a state's model, which actions read as ``ctx.state``.

Models and dataclasses in it are instances of a frozen subclass, and lists and maps refuse changes: an action changes
the state by its patches only.
"""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, NoReturn

from pydantic import BaseModel

from world.core.state_model.validators import instance_of
from world.model.immutable_json import FrozenDict

__all__ = ["frozen_instance"]


def frozen_instance(model: type[BaseModel], data: FrozenDict) -> BaseModel:
    """Return data as a frozen instance of a model.

    Raises:
        ValidationError: the data does not fit, or a validator refuses it.
    """
    made = instance_of(model, data)
    _freeze(made)
    return made


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("ctx.state is read-only; return patches to change the state.")


class _Quiet:
    """Keeps the hooks of a model that run for each subclass from running for its frozen one."""

    __slots__ = ()

    def __init_subclass__(cls, **_: Any) -> None:
        """Run no hook."""

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Run no hook."""


class _List(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = clear = pop = sort = reverse = _refuse

    def __reduce__(self) -> Any:
        """Copy and pickle it as a list."""
        return list, (list(self),)


class _Dict(dict[Any, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        """Copy and pickle it as a dict."""
        return dict, (dict(self),)


@lru_cache(maxsize=1_024)
def _frozen_class(kind: type[Any]) -> type[Any]:
    members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__setattr__": _refuse,
        "__slots__": (),
    }
    bases = (_Quiet, kind) if issubclass(kind, BaseModel) else (kind,)
    make: Any = type(kind)
    made: type[Any] = make(kind.__name__, bases, {**members, "__delattr__": _refuse, "__doc__": kind.__doc__})
    return made


def _freeze(value: Any) -> Any:
    if isinstance(value, BaseModel):
        for members in (value.__dict__, value.__pydantic_extra__ or {}):
            for name, inner in members.items():
                members[name] = _freeze(inner)
        object.__setattr__(value, "__class__", _frozen_class(type(value)))
        return value
    if is_dataclass(value):
        for one in fields(value):
            object.__setattr__(value, one.name, _freeze(getattr(value, one.name)))
        kind: Any = type(value)
        object.__setattr__(value, "__class__", _frozen_class(kind))
        return value
    if isinstance(value, (list, deque)):
        return _List(map(_freeze, value))
    if isinstance(value, dict):
        return _Dict((key, _freeze(inner)) for key, inner in value.items())
    if isinstance(value, tuple):
        frozen = map(_freeze, value)
        return tuple(frozen) if type(value) is tuple else type(value)(*frozen)
    return value
