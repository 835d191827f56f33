"""Limits of the growth of a state by one patch.

A frozen tree shares its nodes, so a few patches could make a tree with an unbounded text: each
one that puts a value into itself twice doubles it. Nesting adds up over many intents, too. Both are bounded
here, where a value enters the state; the previous value of the place is not counted again. Source: HC-flow
(everything ends).
"""

from __future__ import annotations

from typing import Any, Final

from world.model.immutable_json import FrozenDict, FrozenList

__all__ = ["MAX_NEW_NODES", "MAX_STATE_DEPTH", "growth_fault"]

MAX_STATE_DEPTH: Final = 128
"""Maximum depth of a state, below the limits of the serializers."""

MAX_NEW_NODES: Final = 1_000_000
"""Maximum number of values, and kilobytes of text, that one patch may add."""


def growth_fault(value: Any, before: Any, depth: int) -> str | None:
    """Return the reason why a value is too large, None where it is not.

    Args:
        value: frozen, about to be put there.
        before: the current value; its members are not counted again.
        depth: levels above the place.
    """
    if value is before or not isinstance(value, (FrozenDict, FrozenList)):
        return None
    waiting: list[tuple[list[Any], int]] = [(_new_members(value, before), depth)]
    count = 0
    while waiting:
        members, level = waiting.pop()
        count += len(members)
        if level >= MAX_STATE_DEPTH:
            return f"would nest the state deeper than {MAX_STATE_DEPTH} levels"
        count += sum(len(member) >> 10 for member in members if type(member) is str)
        if count > MAX_NEW_NODES:
            return f"brings more than {MAX_NEW_NODES} values into the state at once"
        waiting += [(_members(member), level + 1) for member in members if isinstance(member, (FrozenDict, FrozenList))]
    return None


def _new_members(value: FrozenDict | FrozenList, before: Any) -> list[Any]:
    """Return the new members, or all of them where one is repeated."""
    members = _members(value)
    if isinstance(before, (FrozenDict, FrozenList)) and len(set(map(id, members))) == len(members):
        known = set(map(id, _members(before)))  # they live as long as ``before`` does, so their ids are theirs
        return [member for member in members if id(member) not in known]
    return members


def _members(node: FrozenDict | FrozenList) -> list[Any]:
    return list(node.values()) if isinstance(node, FrozenDict) else node
