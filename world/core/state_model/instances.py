"""Frozen instances of a state's model, which actions read as ``ctx.state``.

Models in it are instances of a frozen subclass, and lists and maps refuse changes: an action changes the state by its
patches only.
"""

from __future__ import annotations

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


class _List(list[Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = remove = clear = pop = sort = reverse = _refuse


class _Dict(dict[Any, Any]):
    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse


@lru_cache(maxsize=1_024)
def _frozen_class(kind: type[BaseModel]) -> type[BaseModel]:
    members = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__setattr__": _refuse}
    return type(kind.__name__, (kind,), {**members, "__delattr__": _refuse, "__doc__": kind.__doc__})


def _freeze(value: Any) -> Any:
    if isinstance(value, BaseModel):
        for name, inner in value.__dict__.items():
            value.__dict__[name] = _freeze(inner)
        object.__setattr__(value, "__class__", _frozen_class(type(value)))
        return value
    if type(value) is list:
        return _List(map(_freeze, value))
    if isinstance(value, dict):
        return _Dict((key, _freeze(inner)) for key, inner in value.items())
    if type(value) is tuple:
        return tuple(map(_freeze, value))
    return value
