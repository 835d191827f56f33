from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from world.errors import DamagedLogError
from world.log.merkle import (
    CHUNK_LEAVES,
    EMPTY_ROOT,
    Chunk,
    Frontier,
    consistency_proof,
    inclusion_proof,
    leaf_hash,
    node_hash,
    subtrees_of,
    tree_root,
    verify_consistency,
    verify_inclusion,
)

# The reference tree of Certificate Transparency: eight inputs, and the roots over the first n of them.
REFERENCE_INPUTS = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
REFERENCE_ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]

leaf_lists = st.lists(st.binary(max_size=8).map(leaf_hash), min_size=1, max_size=70)


def naive_root(leaves: list[bytes]) -> bytes:
    """The recursive definition of RFC 9162 section 2.1.1, word for word."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return leaves[0]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return node_hash(naive_root(leaves[:split]), naive_root(leaves[split:]))


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def test_the_empty_tree_is_the_hash_of_nothing() -> None:
    assert tree_root([]) == EMPTY_ROOT
    assert EMPTY_ROOT.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize("size", range(1, 9))
def test_roots_are_those_of_the_reference_tree(size: int) -> None:
    leaves = [leaf_hash(data) for data in REFERENCE_INPUTS[:size]]
    assert tree_root(leaves).hex() == REFERENCE_ROOTS[size - 1]


def test_inclusion_and_consistency_paths_are_those_of_the_reference_tree() -> None:
    tree = subtrees_of([leaf_hash(data) for data in REFERENCE_INPUTS])
    assert [node.hex() for node in inclusion_proof(5, 8, tree)] == [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]
    assert [node.hex() for node in consistency_proof(6, 8, tree)] == [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ]


@given(leaf_lists)
def test_a_grown_tree_has_the_root_of_the_recursive_definition(leaves: list[bytes]) -> None:
    assert tree_root(leaves) == naive_root(leaves)


@given(leaf_lists, st.data())
def test_a_tree_grown_in_any_steps_is_the_same_tree(leaves: list[bytes], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(leaves)))
    first = Frontier().extended(leaves[:cut])
    again = Frontier.from_bytes(first.size, first.to_bytes())
    assert again.extended(leaves[cut:]) == Frontier().extended(leaves)


@given(leaf_lists, st.data())
def test_every_inclusion_proof_verifies_and_no_altered_one_does(leaves: list[bytes], data: st.DataObject) -> None:
    size, root = len(leaves), tree_root(leaves)
    index = data.draw(st.integers(0, size - 1))
    path = inclusion_proof(index, size, subtrees_of(leaves))
    assert verify_inclusion(leaves[index], index, size, path, root)
    assert not verify_inclusion(flipped(leaves[index]), index, size, path, root)
    assert not verify_inclusion(leaves[index], index, size, path, flipped(root))
    assert not verify_inclusion(leaves[index], index, size, [*path, root], root)
    assert not verify_inclusion(leaves[index], size, size, path, root)
    for at in range(len(path)):
        altered = [*path[:at], flipped(path[at]), *path[at + 1 :]]
        assert not verify_inclusion(leaves[index], index, size, altered, root)
        assert not verify_inclusion(leaves[index], index, size, path[:at] + path[at + 1 :], root)


@given(leaf_lists, st.data())
def test_every_consistency_proof_verifies_and_no_altered_one_does(leaves: list[bytes], data: st.DataObject) -> None:
    second = len(leaves)
    first = data.draw(st.integers(0, second))
    old, new = tree_root(leaves[:first]), tree_root(leaves)
    path = consistency_proof(first, second, subtrees_of(leaves))
    assert verify_consistency(first, second, old, new, path)
    assert not verify_consistency(first, second, flipped(old), new, path)
    assert not verify_consistency(first, second, old, new, [*path, new])
    if first:
        assert not verify_consistency(first, second, old, flipped(new), path)
    for at in range(len(path)):
        altered = [*path[:at], flipped(path[at]), *path[at + 1 :]]
        assert not verify_consistency(first, second, old, new, altered)


@given(st.lists(st.binary(min_size=1, max_size=4).map(leaf_hash), min_size=2, max_size=40), st.data())
def test_a_tree_with_another_past_has_no_consistency_proof(leaves: list[bytes], data: st.DataObject) -> None:
    first = data.draw(st.integers(1, len(leaves)))
    changed = data.draw(st.integers(0, first - 1))
    other = [*leaves[:changed], flipped(leaves[changed]), *leaves[changed + 1 :]]
    path = consistency_proof(first, len(leaves), subtrees_of(other))
    assert not verify_consistency(first, len(leaves), tree_root(leaves[:first]), tree_root(other), path)


def test_filled_chunks_hold_their_root_and_the_tree_after_them() -> None:
    leaves = [leaf_hash(b"%d" % number) for number in range(3 * CHUNK_LEAVES + 5)]
    chunks: list[Chunk] = []
    frontier = Frontier()
    for at in range(0, len(leaves), 100):
        frontier = frontier.extended(leaves[at : at + 100], chunks)
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    for chunk in chunks:
        start = chunk.index * CHUNK_LEAVES
        assert chunk.root == tree_root(leaves[start : start + CHUNK_LEAVES])
        assert chunk.frontier == Frontier().extended(leaves[: start + CHUNK_LEAVES])


def test_a_frontier_of_the_wrong_length_is_damage() -> None:
    with pytest.raises(DamagedLogError):
        Frontier.from_bytes(3, b"\0" * 32)


@pytest.mark.parametrize(("first", "second"), [(3, 2), (-1, 2)])
def test_sizes_out_of_order_have_no_proof(first: int, second: int) -> None:
    leaves = [leaf_hash(b"a"), leaf_hash(b"b")]
    with pytest.raises(ValueError, match="does not begin"):
        consistency_proof(first, second, subtrees_of(leaves))
    assert not verify_consistency(first, second, tree_root(leaves), tree_root(leaves), [])


def test_a_leaf_outside_the_tree_has_no_proof() -> None:
    with pytest.raises(ValueError, match="not in a tree"):
        inclusion_proof(1, 1, subtrees_of([leaf_hash(b"a")]))
