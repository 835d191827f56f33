"""Validators in Python of a state's model, run on the state that an action leaves.

What a validator refuses is a fault with the place that it concerns. A validator that raises anything else has refused
too. A value that a validator changes is changed in the instance (``ctx.state``) and not in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from world.core.validate import MAX_FAULTS, StateFault
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import FrozenDict
from world.model.paths import array_index, format_path

__all__ = ["instance_of", "validator_faults"]


def instance_of(model: type[BaseModel], data: FrozenDict) -> BaseModel:
    """Return the instance of a model for data.

    Args:
        model: the state's model.
        data: the data; members whose names start with ``$`` belong to hosts and tools.

    Raises:
        ValidationError: the data does not fit, or a validator refuses it.
    """
    kept = {name: value for name, value in data.items() if not name.startswith("$")}
    return model.model_validate_json(canonical_bytes(kept), by_alias=True)


def validator_faults(model: type[BaseModel], data: FrozenDict) -> list[StateFault]:
    """Return what a model refuses of data, at most ``MAX_FAULTS``."""
    try:
        instance_of(model, data)
    except ValidationError as invalid:
        errors = invalid.errors(include_url=False, include_context=False, include_input=False)[:MAX_FAULTS]
        return [StateFault(_place(data, error["loc"]), f"is refused: {_whole(error['msg'])}") for error in errors]
    except Exception as raised:  # noqa: BLE001 - whatever an author's validator raises, it did not accept the state
        return [StateFault("", f"is refused: a validator raised {type(raised).__name__}: {_whole(str(raised))[:500]}")]
    return []


def _place(data: Any, location: tuple[int | str, ...]) -> str:
    """Return the path of a fault; names of alternatives, which are no places of the data, are left out."""
    segments: list[str] = []
    for number, name in enumerate(location):
        is_last = number == len(location) - 1
        if isinstance(data, Mapping) and (name in data or is_last):
            data = data.get(str(name))
        elif isinstance(data, list) and (index := array_index(str(name))) is not None and index < len(data):
            data = data[index]
        else:
            continue
        segments.append(str(name))
    return format_path(tuple(segments))


def _whole(text: str) -> str:
    return text.removeprefix("Value error, ").removeprefix("Assertion failed, ").rstrip(".")
