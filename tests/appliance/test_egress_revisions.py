"""Egress follows the policy by itself: which revisions a permit may name, and for how long."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from conductor.config import Site
from conductor.egress.revisions import Revisions
from conductor.errors import ConductorError
from support.configs import policy_tree, remote_worker, small_site

GRACE_S = 600.0


@dataclass
class Store:
    """Policies that were put in force, by revision; counts how often each was read."""

    folder: Path
    kept: set[int] = field(default_factory=set)
    reads: list[int] = field(default_factory=list)

    def site(self, revision: int) -> Site:
        tree = policy_tree()
        level = "internal" if revision % 2 else "public"
        tree["destinations"]["frontier"]["clearance"]["level"] = level
        folder = self.folder / str(revision)
        folder.mkdir()
        changed = {**tree, "revision": revision}
        site: Site = small_site(folder, policy=changed, workers=[remote_worker("vendor")])
        return site

    def read(self, revision: int) -> Site:
        self.reads.append(revision)
        if revision not in self.kept:
            raise ConductorError("there is no such copy")
        return self.site(revision)


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path, {2, 3})


def level(revisions: Revisions, revision: int) -> int | None:
    """How high the vendor is cleared under a revision; None when no permit may name it."""
    cleared = revisions.of(revision)
    if cleared is None:
        return None
    return max(worker.clearance.level for worker in cleared.workers.values())


async def test_a_newer_revision_counts_as_soon_as_a_permit_names_it(store: Store) -> None:
    revisions = Revisions(store.site(1), store.read, GRACE_S, Clock())
    assert level(revisions, 2) is None
    await revisions.learn(2)
    assert (level(revisions, 1), level(revisions, 2)) == (1, 0)


async def test_what_was_never_put_in_force_counts_for_nothing(store: Store) -> None:
    revisions = Revisions(store.site(1), store.read, GRACE_S, Clock())
    await revisions.learn(7)
    assert level(revisions, 7) is None and level(revisions, 1) == 1 and revisions.highest == 1


async def test_the_one_before_goes_on_for_its_grace_and_then_no_more(store: Store) -> None:
    clock = Clock()
    revisions = Revisions(store.site(1), store.read, GRACE_S, clock)
    await revisions.learn(2)
    clock.now = GRACE_S
    await revisions.learn(3)
    assert [level(revisions, one) for one in (1, 2, 3)] == [1, 0, 1]
    clock.now += 1
    assert [level(revisions, one) for one in (1, 2, 3)] == [None, 0, 1]
    clock.now += GRACE_S
    assert [level(revisions, one) for one in (1, 2, 3)] == [None, None, 1]


async def test_an_older_revision_is_not_learnt_though_it_was_in_force_once(store: Store) -> None:
    revisions = Revisions(store.site(3), store.read, GRACE_S, Clock())
    await revisions.learn(2)
    assert level(revisions, 2) is None and store.reads == []


async def test_a_hundred_at_once_read_it_once(store: Store) -> None:
    revisions = Revisions(store.site(1), store.read, GRACE_S, Clock())
    await asyncio.gather(*(revisions.learn(2) for _ in range(100)))
    assert store.reads == [2] and level(revisions, 2) == 0
