"""Following values back through patches to the one that put each of them there.

The values below a path, as they stand in one world, are followed through the patches of that world and its ancestors,
the newest first. A value is taken by the last patch that wrote the place where it stood:

- a patch that sets an object or a list as a whole wrote everything in it; a merge wrote the members it names;
- writing an equal value again is writing: who did it vouched for the value;
- an element that moved because one before it was removed keeps its writer, and is followed at the place it had before;
- an empty object or list is of the last patch that set it, or unset a member of it;
- what is absent is of the last patch that set or unset that place or one around it; behind the end of a list, of the
  last removal from that list.

Each patch costs a walk along its path, however many values are followed. Source: IC-audit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from world.model.patch import Patch
from world.model.paths import Segments, array_index, parse_path

NOBODY: Final = -1
"""Stands for the patch of a value that no patch was found for yet."""

MAX_MOVES: Final = 100
"""How many removals are kept that moved one value, the newest ones."""


@dataclass(slots=True)
class _Elements:
    """A list: what is followed at each index, and what is absent behind its end."""

    slots: list[Any] = field(default_factory=list)
    absent: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Empty:
    """An empty object or list."""

    number: int


_Node = Any
"""A dict by member name, ``_Elements``, ``_Empty``, or the number of a value."""


class Tracker:
    """Values on their way back; ``owners`` tells by number which patch took each, as numbered by the caller.

    Args:
        moves: whether ``moved`` is kept: by number the patches that removed an element before a value, the newest
            first, and so made it stand where it does. What is absent behind the end of a list then is of no single
            removal, but moved by all of them.
    """

    def __init__(self, *, moves: bool = False) -> None:
        """Follow nothing yet."""
        self.owners = array("q")
        self.remaining = 0
        self.moved: dict[int, list[int]] | None = {} if moves else None
        self._noted = 0
        self._root: _Node = {}

    def follow(self, data: Any, place: Segments) -> range:
        """Follow every value below a place, or the place itself where nothing stands there.

        Args:
            data: the whole data of the world to begin with.
            place: may be followed once; places must not lie in each other.

        Returns:
            The numbers of the values, in the order of ``leaves``.
        """
        first = len(self.owners)
        if not place:
            self._root = self._followed(data)
            return range(first, len(self.owners))
        node, at = self._root, data
        for name in place[:-1]:
            at = _member(at, name)
            node = _entered(node, name, is_list=isinstance(at, list))
        at, name = _member(at, place[-1]), place[-1]
        if isinstance(node, _Elements):
            index = array_index(name)
            if index is None:
                self._new()
            elif at is _ABSENT:
                node.absent.append((index, self._new()))
            else:
                _put(node.slots, index, self._followed(at))
        else:
            node[name] = self._new() if at is _ABSENT else self._followed(at)
        return range(first, len(self.owners))

    def undo(self, patches: Sequence[Patch], numbers: Sequence[int]) -> bool:
        """Go back over the patches of one world, the last one first.

        Args:
            patches: in the order in which they were applied.
            numbers: what ``owners`` is to hold for the values that each of them took.

        Returns:
            Whether any value was taken, or moved where that is kept.
        """
        before = self.remaining, self._noted
        for patch, number in zip(reversed(patches), reversed(numbers), strict=True):
            at = parse_path(patch.path)
            if patch.op != "merge":
                self._written(at, number, removed=patch.op == "unset")
            elif isinstance(patch.value, Mapping):
                for key in patch.value:
                    self._written((*at, key), number, removed=False)
                if not patch.value:
                    self._made(at, number)
        return (self.remaining, self._noted) != before

    def take_rest(self, number: int) -> None:
        """Let everything that was not taken yet be of this patch, or of genesis."""
        self._take(self._root, number)
        for at, owner in enumerate(self.owners):
            if owner == NOBODY:
                self._take(at, number)

    def _new(self) -> int:
        self.owners.append(NOBODY)
        self.remaining += 1
        return len(self.owners) - 1

    def _followed(self, value: Any) -> _Node:
        if isinstance(value, dict):
            return {key: self._followed(item) for key, item in value.items()} if value else _Empty(self._new())
        if isinstance(value, list):
            return _Elements([self._followed(item) for item in value]) if value else _Empty(self._new())
        return self._new()

    def _written(self, at: Segments, number: int, *, removed: bool) -> None:
        """Let what stands at a place and in it be of a patch, and move what stood behind a removed element."""
        if not at:
            self._take(self._root, number)
            self._root = {}
            return
        node, name = self._found(at[:-1]), at[-1]
        if isinstance(node, dict):
            self._take(node.pop(name, None), number)
        elif isinstance(node, _Elements):
            index = array_index(name)
            if index is not None and removed:
                self._removed(node, index, number)
            elif index is not None and index < len(node.slots):
                self._take(node.slots[index], number)
                node.slots[index] = None
        elif isinstance(node, _Empty) and removed:
            self._take(node, number)

    def _removed(self, node: _Elements, index: int, number: int) -> None:
        if self.moved is not None:
            for value in (*node.slots[index:], *(value for _, value in node.absent)):
                self._note(value, number)
        if index <= len(node.slots):
            node.slots.insert(index, None)
        for place, value in node.absent:
            if place >= index and self.moved is None:
                self._take(value, number)

    def _note(self, node: _Node, number: int) -> None:
        """Note that what is followed here was moved by a patch."""
        assert self.moved is not None
        for at in _numbers(node):
            patches = self.moved.setdefault(at, [])
            if self.owners[at] == NOBODY and len(patches) < MAX_MOVES:
                patches.append(number)
                self._noted += 1

    def _made(self, at: Segments, number: int) -> None:
        """Let an empty object be of the merge of nothing that may have made it."""
        node = self._found(at)
        if isinstance(node, _Empty):
            self._take(node, number)

    def _found(self, at: Segments) -> _Node:
        node = self._root
        for name in at:
            if isinstance(node, dict):
                node = node.get(name)
            elif isinstance(node, _Elements):
                index = array_index(name)
                node = node.slots[index] if index is not None and index < len(node.slots) else None
            else:
                return None
        return node

    def _take(self, node: _Node, number: int) -> None:
        for at in _numbers(node):
            if self.owners[at] == NOBODY:
                self.owners[at] = number
                self.remaining -= 1


def _numbers(node: _Node) -> Iterator[int]:
    """Yield the numbers of all values that are followed in a node."""
    stack = [node]
    while stack:
        one = stack.pop()
        if isinstance(one, dict):
            stack += one.values()
        elif isinstance(one, _Elements):
            stack += one.slots
            stack += [value for _, value in one.absent]
        elif one is not None:
            yield one.number if isinstance(one, _Empty) else one


class _AbsentValue:
    """Stands for nothing, which null is not."""


_ABSENT: Final = _AbsentValue()


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, _ABSENT)
    if isinstance(value, list):
        index = array_index(name)
        return value[index] if index is not None and index < len(value) else _ABSENT
    return _ABSENT


def _entered(node: _Node, name: str, *, is_list: bool) -> _Node:
    """Return what is followed in a member, made where nothing is followed there yet."""
    index = array_index(name) if isinstance(node, _Elements) else None
    known = node.get(name) if isinstance(node, dict) else None
    if index is not None and index < len(node.slots):
        known = node.slots[index]
    if known is None or isinstance(known, int | _Empty):
        known = _Elements() if is_list else {}
        if isinstance(node, dict):
            node[name] = known
        elif index is not None:
            _put(node.slots, index, known)
    return known


def _put(slots: list[Any], index: int, node: _Node) -> None:
    slots.extend([None] * (index + 1 - len(slots)))
    slots[index] = node


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and the value of everything in a value that has no members, empty objects and lists included."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, joined(path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


def joined(path: str, key: str) -> str:
    """Return the path of a member of what stands at a path."""
    name = key.replace("\\", "\\\\").replace(".", "\\.") if "." in key or "\\" in key else key
    return f"{path}.{name}" if path else name
