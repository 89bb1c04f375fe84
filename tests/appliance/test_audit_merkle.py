"""The tree over the records: its roots are those of RFC 6962, whatever it was resumed from."""

from __future__ import annotations

import hashlib
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.audit.merkle import EMPTY_ROOT, Frontier, leaf_hash, node_hash

LEAVES = [
    bytes.fromhex(each)
    for each in (
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
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    4: "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    5: "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    6: "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}
"""The published vectors of Certificate Transparency."""


def tree_of(leaves: list[bytes]) -> Frontier:
    tree = Frontier()
    for leaf in leaves:
        tree.append(leaf_hash(leaf))
    return tree


@cache
def by_definition(leaves: tuple[bytes, ...]) -> bytes:
    """MTH of RFC 6962, by the letter."""
    if len(leaves) < 2:
        return leaf_hash(leaves[0]) if leaves else hashlib.sha256().digest()
    split = 1
    while 2 * split < len(leaves):
        split *= 2
    return node_hash(by_definition(leaves[:split]), by_definition(leaves[split:]))


@pytest.mark.parametrize("size", ROOTS)
def test_roots_are_those_of_the_published_vectors(size: int) -> None:
    assert tree_of(LEAVES[:size]).root.hex() == ROOTS[size]


def test_the_empty_tree_has_the_root_of_nothing() -> None:
    assert Frontier().root == EMPTY_ROOT == by_definition(())


@given(st.lists(st.binary(max_size=3), max_size=70), st.data())
def test_a_tree_resumed_anywhere_ends_as_the_definition_says(
    leaves: list[bytes], data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, len(leaves)))
    before = tree_of(leaves[:stop])
    resumed = Frontier.from_hex(before.size, before.hex())
    for leaf in leaves[stop:]:
        resumed.append(leaf_hash(leaf))
    assert resumed.root == by_definition(tuple(leaves))
    assert resumed.size == len(leaves) and len(resumed.hex()) == len(leaves).bit_count()


def test_a_copy_grows_apart() -> None:
    tree = tree_of(LEAVES[:3])
    other = tree.copy()
    other.append(leaf_hash(b"x"))
    assert tree.root.hex() == ROOTS[3] and tree.size == 3


@pytest.mark.parametrize(
    ("size", "hashes"), [(-1, []), (1, []), (2, ["00" * 32] * 2), (1, ["00" * 31]), (1, ["zz"])]
)
def test_hashes_that_are_no_frontier_are_refused(size: int, hashes: list[str]) -> None:
    with pytest.raises(ValueError):
        Frontier.from_hex(size, hashes)
