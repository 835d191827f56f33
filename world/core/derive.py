"""Computed values: derived from the data, never stored as its own.

A value that cannot be computed is null. Values whose dependencies are the same nodes as before are not
computed again. Source: HC-flow (computed values are a DAG), design section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from world.core.expressions.scope import Scope
from world.core.values import ExpressionError
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze

if TYPE_CHECKING:
    from world.core.execution import Program
    from world.core.schema import ComputedSpec

__all__ = ["recompute"]


_NOTHING: Final = FrozenDict()


def recompute(
    program: Program,
    data: FrozenDict,
    old_data: FrozenDict | None = None,
    old_computed: Mapping[str, Any] | None = None,
) -> FrozenDict:
    """Return the computed values of the data by their full names.

    Args:
        program: the domain.
        data: the data they are derived from.
        old_data: data whose computed values are known, or None.
        old_computed: those values; used only where it has all of them.
    """
    specs = program.schema.computed
    if not specs:
        return _NOTHING
    known = old_computed if old_data is not None and old_computed is not None else {}
    if any(spec.name not in known for spec in specs):
        known = {}
    elif old_data is data and isinstance(known, FrozenDict) and len(known) == len(specs):
        return known
    changed: set[str] = set()
    values: dict[str, Any] = {}
    for spec in specs:
        if known and old_data is not None and not _stale(spec, data, old_data, changed):
            values[spec.name] = known[spec.name]
            continue
        changed.add(spec.name)
        values[spec.name] = _value(program, spec, data, values)
    computed: FrozenDict = freeze(values)
    return computed


def _stale(spec: ComputedSpec, data: FrozenDict, old_data: FrozenDict, changed: set[str]) -> bool:
    moved = any(data.get(root) is not old_data.get(root) for root in spec.roots)
    return moved or not changed.isdisjoint(spec.inner)


def _value(program: Program, spec: ComputedSpec, data: FrozenDict, values: Mapping[str, Any]) -> Any:
    try:
        if spec.evaluate is not None:
            return freeze(spec.evaluate(Scope(data, computed=values)))
        return freeze(program.computed_function(spec.name)(_seen(spec, data, values)))
    except (ExpressionError, RefusedError, RecursionError):
        return None
    except Exception:  # noqa: BLE001 - a computed value is total, whatever its author's function raises
        return None


def _seen(spec: ComputedSpec, data: FrozenDict, values: Mapping[str, Any]) -> FrozenDict:
    """Return the declared dependencies of a Python function."""
    seen = {root: data[root] for root in spec.roots if root in data}
    frozen: FrozenDict = freeze(seen | {name: values[name] for name in spec.inner if name in values})
    return frozen
