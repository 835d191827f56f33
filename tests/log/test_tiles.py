"""Tiles of a log's tree, and their names, against the specification and two independent clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from tlog_scales.reader import TilesReader

from tests.support.tables import for_each
from tests.support.tlog_client import Tree, index_path, is_consistent, leaf
from world.errors import RefusedError
from world.log import EventLog, NewEvent, open_log
from worldprotocol.export.proofs.tiles import Tile, entry_bundle, read_level, read_tile

SIZE = 70_000
"""The size of the example in C2SP tlog-tiles, "Partial Tiles"."""


class Backend:
    """The tiles of a tree, as the client ``tlog_scales`` gets them; it writes their paths itself."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def get(self, *path: str) -> bytes | None:
        return self.tree.fetch("/".join(path))


def reader_of(tree: Tree) -> TilesReader:
    reader = TilesReader(Backend(tree))
    reader.set_size(tree.size)
    return reader


def fetch_from(log: EventLog) -> Tree:
    def fetch(path: str) -> bytes:
        _, level, name = path.split("/", 2)
        tile = read_tile(name)
        return entry_bundle(log, tile) if level == "entries" else log.tile(read_level(level), tile.index, tile.width)

    return Tree(fetch, log.head().size)


def grown(log: EventLog, size: int, state: bytes = b"{}") -> None:
    begin = log.head().size
    for at in range(begin, size, 5_000):
        log.insert_events([NewEvent(f"s{at}", "test.event", 1, state) for _ in range(min(5_000, size - at))])


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("size", [1, 255, 256, 257, 600])
def test_the_root_and_every_entry_follow_from_the_tiles(tmp_path: Path, size: int) -> None:
    with open_log(str(tmp_path / "log.db"), create=True) as log:
        grown(log, size)
        tree = fetch_from(log)
        assert tree.root() == log.head().root
        assert len(tree.entries()) == size
        reader = reader_of(tree)
        assert reader.calculate_root_hash() == log.head().root
        assert [reader.get_entry(index) for index in range(size)] == tree.entries()
        for first in {1, size // 2 or 1, size}:
            reader.get_consistency_proof(first, size).check(log.root_at(first).root, log.head().root)
            assert is_consistent(first, size, tree.consistency(first), log.root_at(first).root, tree.root())


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_a_tree_of_the_size_in_the_specification_has_its_tiles(tmp_path: Path) -> None:
    with open_log(str(tmp_path / "log.db"), create=True) as log:
        grown(log, SIZE)
        tree = fetch_from(log)
        assert tree.root() == log.head().root
        widths = {(0, 0): 256, (0, 272): 256, (0, 273): 112, (1, 0): 256, (1, 1): 17, (2, 0): 1}
        assert {place: len(tree.tile(*place)) for place in widths} == widths
        for level, index, width in ((0, 273, 113), (0, 273, 256), (0, 274, 1), (1, 1, 18), (2, 0, 2), (3, 0, 1)):
            with pytest.raises(RefusedError, match="no tile"):
                log.tile(level, index, width)
        reader = reader_of(tree)
        assert reader.calculate_root_hash() == log.head().root
        for first in (1, 65_536, 65_537, 69_999):
            reader.get_consistency_proof(first, SIZE).check(log.root_at(first).root, log.head().root)
            reader.get_inclusion_proof(first, SIZE).check(leaf(reader.get_entry(first)), log.head().root)
            assert is_consistent(first, SIZE, tree.consistency(first), log.root_at(first).root, tree.root())


def test_a_tile_is_named_as_the_specification_says() -> None:
    assert Tile(1_234_067).path == "x001/x234/067" == index_path(1_234_067)
    for index in (0, 7, 999, 1_000, 999_999, 1_000_000, 10**17, 10**18 - 1):
        for width in (1, 255, 256):
            tile = Tile(index, width)
            assert read_tile(tile.path) == tile
            assert tile.path == index_path(index) + ("" if width == 256 else f".p/{width}")


@for_each(
    "name",
    [
        "", "0", "00", "0000", "1", "-01", "+01", "x00", "001/002", "x001", "x001/", "x000/001", "x001/x002",
        "X001/002", "001.p/0", "001.p/01", "001.p/256", "001.p/999", "001.p/", "001.p/1/2", "001.P/1", "001.p/-1",
        "001/.p/1", "٠٠١", "001\n", " 001", "..", "../000", "x" * 4_000, "x999/" * 400 + "999", "x001/" * 6 + "001",
        "001%00",
    ],
)  # fmt: skip
def test_other_names_name_no_tile(name: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read_tile(name)
    assert refused.value.code == "NOT_FOUND"


@for_each("level", ["", "00", "01", "64", "99", "100", "-1", "+1", "1.0", "٠", "entries", "9" * 400])
def test_other_texts_are_no_level(level: str) -> None:
    with pytest.raises(RefusedError) as refused:
        read_level(level)
    assert refused.value.code == "NOT_FOUND"


def test_a_bundle_holds_entries_of_up_to_65535_bytes(tmp_path: Path) -> None:
    with open_log(str(tmp_path / "log.db"), create=True) as log:
        grown(log, 1, b'""')
        empty = len(fetch_from(log).entries()[0]) - 2
        log.insert_events([NewEvent("s0", "test.event", 1, b'"%b"' % (b"x" * (65_535 - empty - 2)))])
        assert [len(one) for one in fetch_from(log).entries()] == [empty + 2, 65_535]
        log.insert_events([NewEvent("s0", "test.event", 1, b'"%b"' % (b"x" * (65_536 - empty - 2)))])
        assert len(log.tile(0, 0, 3)) == 96
        with pytest.raises(RefusedError, match="Event 3 has 65536 bytes") as refused:
            entry_bundle(log, Tile(0, 3))
        assert refused.value.code == "NOT_FOUND"
        assert len(entry_bundle(log, Tile(0, 2))) == 2 + empty + 2 + 2 + 65_535
