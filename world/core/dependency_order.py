"""Topological order of dependencies and their cycles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from world.core.schema import ComputedSpec

__all__ = ["circles", "computed_order"]


def circles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Return the cycles of a directed graph, each once, with the first name repeated at the
    end.

    Args:
        edges: for every node its successors; names without an entry are ignored.
    """
    found: list[list[str]] = []
    done: set[str] = set()
    for start in edges:
        if start in done:
            continue
        trail, waiting = [start], [(start, iter(edges[start]))]
        while waiting:
            node, following = waiting[-1]
            step = next(following, None)
            if step is None:
                waiting.pop()
                trail.pop()
                done.add(node)
            elif step in trail:
                found.append([*trail[trail.index(step) :], step])
            elif step in edges and step not in done:
                waiting.append((step, iter(edges[step])))
                trail.append(step)
    return found


def computed_order(specs: Sequence[ComputedSpec]) -> list[ComputedSpec]:
    """Return computed values in dependency order; those of a cycle in the given
    order.
    """
    names = {spec.name: spec for spec in specs}
    order: dict[str, ComputedSpec] = {}
    for spec in specs:
        waiting = [(spec, iter(spec.deps))]
        entered = {spec.name}
        while waiting:
            current, deps = waiting[-1]
            dep = next((d for d in deps if d in names and d not in order and d not in entered), None)
            if dep is None:
                order.setdefault(current.name, current)
                waiting.pop()
            else:
                entered.add(dep)
                waiting.append((names[dep], iter(names[dep].deps)))
    return list(order.values())
