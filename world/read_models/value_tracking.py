"""Tracking of values back through patches to the patch that set each of them.

The values below a path in one world are tracked through the patches of that world and its ancestors, newest first. The
owner of a value is the last patch that wrote its place:

- a patch that sets a complete object or list writes everything in it; a merge writes the members that it names;
- writing an equal value again counts as writing;
- an element that was shifted by the removal of an earlier element keeps its owner, and is tracked at its old index;
- the owner of an empty object or list is the last patch that set it or unset a member of it;
- the owner of an absent value is the last patch that set or unset its place or one that contains it; after the end of
  a list, the last removal from that list.

The cost of a patch is proportional to the length of its path, independent of the number of values. Source: IC-audit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from world.model.patch import Patch
from world.model.paths import Segments, array_index, parse_path

NOBODY: Final = -1
"""Owner of a value whose patch has not been found yet."""

MAX_MOVES: Final = 100
"""Maximum number of recorded removals that shifted one value; the newest ones are kept."""


@dataclass(slots=True)
class _Elements:
    """List: the tracked node at each index, and absent values after its end."""

    slots: list[Any] = field(default_factory=list)
    absent: list[tuple[int, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Empty:
    """Empty object or list."""

    number: int


_Node = Any
"""A dict by member name, ``_Elements``, ``_Empty``, or the number of a value."""


class Tracker:
    """Tracked values; ``owners`` has, by number of the value, the number of its patch, as given by the caller.

    Args:
        moves: whether to record ``moved``: by number of the value, the patches that removed an earlier element of its
            list and so shifted it, newest first. An absent value after the end of a list then has no owner, and is
            shifted by all removals.
    """

    def __init__(self, *, moves: bool = False) -> None:
        """Create a tracker without values."""
        self.owners = array("q")
        self.remaining = 0
        self.moved: dict[int, list[int]] | None = {} if moves else None
        self._noted = 0
        self._root: _Node = {}

    def follow(self, data: Any, place: Segments) -> range:
        """Track all values below a place, or the place itself where it is absent.

        Args:
            data: the complete data of the world to start from.
            place: the place; places must be tracked once and must not contain each other.

        Returns:
            The numbers of the values, in the order of ``leaves``.
        """
        first = len(self.owners)
        if not place:
            self._root = self._tracked(data)
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
                _put(node.slots, index, self._tracked(at))
        else:
            node[name] = self._new() if at is _ABSENT else self._tracked(at)
        return range(first, len(self.owners))

    def undo(self, patches: Sequence[Patch], numbers: Sequence[int]) -> bool:
        """Process the patches of one world, last one first.

        Args:
            patches: in the order in which they were applied.
            numbers: for each patch its number, the owner of the values that it wrote.

        Returns:
            Whether any value got an owner, or was shifted where that is recorded.
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
        """Make a patch, or genesis, the owner of all values without an owner."""
        self._take(self._root, number)
        for at, owner in enumerate(self.owners):
            if owner == NOBODY:
                self._take(at, number)

    def _new(self) -> int:
        self.owners.append(NOBODY)
        self.remaining += 1
        return len(self.owners) - 1

    def _tracked(self, value: Any) -> _Node:
        if isinstance(value, dict):
            return {key: self._tracked(item) for key, item in value.items()} if value else _Empty(self._new())
        if isinstance(value, list):
            return _Elements([self._tracked(item) for item in value]) if value else _Empty(self._new())
        return self._new()

    def _written(self, at: Segments, number: int, *, removed: bool) -> None:
        """Make a patch the owner of the values at and below a place; shift the elements after a removed one."""
        if not at:
            self._take(self._root, number)
            self._root = {}
            return
        node, name = self._node_at(at[:-1]), at[-1]
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
        """Record that a patch shifted the values of a node."""
        assert self.moved is not None
        for at in _numbers(node):
            patches = self.moved.setdefault(at, [])
            if self.owners[at] == NOBODY and len(patches) < MAX_MOVES:
                patches.append(number)
                self._noted += 1

    def _made(self, at: Segments, number: int) -> None:
        """Make an empty merge, which may have created an empty object, the owner of that object."""
        node = self._node_at(at)
        if isinstance(node, _Empty):
            self._take(node, number)

    def _node_at(self, at: Segments) -> _Node:
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
    """Yield the numbers of all values that are tracked in a node."""
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
    """Marker of an absent value, as distinct from null."""


_ABSENT: Final = _AbsentValue()


def _member(value: Any, name: str) -> Any:
    if isinstance(value, dict):
        return value.get(name, _ABSENT)
    if isinstance(value, list):
        index = array_index(name)
        return value[index] if index is not None and index < len(value) else _ABSENT
    return _ABSENT


def _entered(node: _Node, name: str, *, is_list: bool) -> _Node:
    """Return the node of a member, created where the member is not tracked yet."""
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
    """Yield path and value of all leaves of a value: scalars, and empty objects and lists."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, joined(path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{index}" if path else str(index))
    else:
        yield path, value


def joined(path: str, key: str) -> str:
    """Return the path of a member of the value at a path."""
    name = key.replace("\\", "\\\\").replace(".", "\\.") if "." in key or "\\" in key else key
    return f"{path}.{name}" if path else name
