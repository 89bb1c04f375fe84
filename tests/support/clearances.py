"""Clearances for a gate, without a policy behind them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from conductor.core import Worker
from conductor.egress.revisions import Cleared
from conductor.labels import Lattice


@dataclass(frozen=True)
class Only:
    """One set of clearances, whatever revision a permit names; or only that one."""

    cleared: Cleared
    revision: int | None = None

    def of(self, revision: int) -> Cleared | None:
        return self.cleared if self.revision in (None, revision) else None


def only(workers: Iterable[Worker], lattice: Lattice, revision: int | None = None) -> Only:
    """Of these workers, those that are remote."""
    return Only(Cleared({w.id: w for w in workers if w.remote}, lattice), revision)
