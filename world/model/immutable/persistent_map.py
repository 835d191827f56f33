"""Persistent maps, and dictionaries that note what changes, so that one can be made from the other in O(changes).

A ``PersistentMap`` is immutable and iterates in order of insertion, as a dictionary does. ``rpds.HashTrieMap``, a hash
array mapped trie, keeps each entry with a sequence number; a changed copy shares everything else with its original.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from operator import itemgetter
from typing import Any, TypeVar, overload

from rpds import HashTrieMap

__all__ = ["PersistentMap", "TrackedDict", "TrackedOrderedDict", "publish_map"]

K = TypeVar("K")
V = TypeVar("V")
P = TypeVar("P")

_first = itemgetter(0)


class PersistentMap(Mapping[K, V]):
    """An immutable mapping in order of insertion."""

    __slots__ = ("_entries", "_next", "_sorted")

    def __init__(self, content: Mapping[K, V] | None = None) -> None:
        """Create a map with the entries of a mapping, in its order."""
        numbered = {key: (number, value) for number, (key, value) in enumerate((content or {}).items())}
        self._entries: HashTrieMap[K, tuple[int, V]] = HashTrieMap(numbered)
        self._next = len(numbered)
        self._sorted: list[tuple[int, K, V]] | None = None

    def __getitem__(self, key: K) -> V:
        return self._entries[key][1]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[K]:
        return iter([key for _, key, _ in self._in_order()])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | P) -> V | P: ...
    def get(self, key: K, /, default: Any = None) -> Any:
        """Return the value of a key, or a default."""
        entry = self._entries.get(key)
        return default if entry is None else entry[1]

    def values(self) -> ValuesView[V]:
        """Return the values in order of insertion."""
        return {number: value for number, _, value in self._in_order()}.values()

    def items(self) -> ItemsView[K, V]:
        """Return the entries in order of insertion."""
        return {key: value for _, key, value in self._in_order()}.items()

    def changed(self, removed: Iterable[K], put: Iterable[tuple[K, V]]) -> PersistentMap[K, V]:
        """Return a copy in which keys are removed first, and then entries are set; a new key comes last.

        Args:
            removed: keys; those that are not in the map have no effect.
            put: keys with their values.
        """
        entries, following = self._entries, self._next
        for key in removed:
            entries = entries.discard(key)
        for key, value in put:
            before = entries.get(key)
            if before is None:
                entries = entries.insert(key, (following, value))
                following += 1
            else:
                entries = entries.insert(key, (before[0], value))
        twin: PersistentMap[K, V] = PersistentMap.__new__(PersistentMap)
        twin._entries, twin._next, twin._sorted = entries, following, None
        return twin

    def _in_order(self) -> list[tuple[int, K, V]]:
        """Return the entries by sequence number; sorted once, when they are first requested."""
        found = self._sorted
        if found is None:
            found = [(number, key, value) for key, (number, value) in self._entries.items()]
            found.sort(key=_first)
            self._sorted = found
        return found


class TrackedDict(dict[K, V]):
    """A dictionary that notes the keys that were set and the entries that were removed.

    ``put`` holds the keys in order, without those that were removed again; ``gone`` holds the removed entries.
    """

    __slots__ = ("gone", "put")

    def __init__(self, content: Mapping[K, V] | None = None) -> None:
        """Create a dictionary without changes."""
        super().__init__(content or {})
        self.put: dict[K, None] = {}
        self.gone: dict[K, V] = {}

    def __setitem__(self, key: K, value: V) -> None:
        dict.__setitem__(self, key, value)
        self.put[key] = None

    def __delitem__(self, key: K) -> None:
        self.gone[key] = dict.pop(self, key)
        self.put.pop(key, None)

    def pop(self, key: K, *default: Any) -> Any:
        """Remove a key and return its value, or the default."""
        if key in self:
            self.put.pop(key, None)
            value = self.gone[key] = dict.pop(self, key)
            return value
        return dict.pop(self, key, *default)

    def setdefault(self, key: K, default: Any = None) -> Any:
        """Return the value of a key, set to the default where it is absent."""
        if key not in self:
            self[key] = default
        return self[key]

    def popitem(self) -> tuple[K, V]:
        """Remove the last entry and return it."""
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all entries."""
        for key in list(self):
            del self[key]

    def update(self, *content: Any, **more: Any) -> None:
        """Set the entries of mappings."""
        for key, value in dict(*content, **more).items():
            self[key] = value

    def __ior__(self, content: Any) -> TrackedDict[K, V]:  # type: ignore[override,misc]
        self.update(content)
        return self


class TrackedOrderedDict(OrderedDict[K, V]):
    """An ordered dictionary, whose first entry is removed in O(1), that notes changes as ``TrackedDict`` does."""

    def __init__(self, content: Mapping[K, V] | None = None) -> None:
        """Create a dictionary without changes."""
        self.put: dict[K, None] = {}
        self.gone: dict[K, V] = {}
        super().__init__(content or {})
        self.put.clear()

    def __setitem__(self, key: K, value: V) -> None:
        OrderedDict.__setitem__(self, key, value)
        self.put[key] = None

    def __delitem__(self, key: K) -> None:
        self.gone[key] = self[key]
        OrderedDict.__delitem__(self, key)
        self.put.pop(key, None)

    def pop(self, key: K, *default: Any) -> Any:
        """Remove a key and return its value, or the default."""
        if key not in self:
            return OrderedDict.pop(self, key, *default)
        value = self[key]
        del self[key]
        return value


def publish_map(
    current: TrackedDict[K, V] | TrackedOrderedDict[K, V],
    before: PersistentMap[K, P],
    published: Callable[[V], P],
) -> PersistentMap[K, P]:
    """Return the published form of a dictionary after its changes, and begin to note changes anew.

    Args:
        current: the dictionary.
        before: its published form before the changes; returned as it is where there were none.
        published: returns the published form of a value.
    """
    put, gone = current.put, current.gone
    if not put and not gone:
        return before
    after = before.changed(gone, [(key, published(current[key])) for key in put])
    current.put, current.gone = {}, {}
    return after
