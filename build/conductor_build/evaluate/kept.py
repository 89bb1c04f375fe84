"""A conductor's plays, kept so that another may be compared with it prompt by prompt later."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conductor_build.baselines.plays import EvaluationError, Plays

if TYPE_CHECKING:
    from conductor_build.bootstrap import Estimate
    from conductor_build.evaluate.scores import Resampling

FILE = "plays.npz"


@dataclass(frozen=True, eq=False)
class Kept:
    """Plays over one pool: on the prompts `ids`, at each lambda."""

    title: str
    workers: tuple[str, ...]
    ids: tuple[str, ...]
    plays: Mapping[float, Plays]

    def less(self, other: Kept, resampling: Resampling) -> dict[float | None, Estimate]:
        """Utility less that of another's plays, at each lambda that both have; None: their mean.

        Raises `EvaluationError` when the pools or the prompts are not the same.
        """
        if set(self.workers) != set(other.workers) or set(self.ids) != set(other.ids):
            raise EvaluationError(
                "the plays to compare with are of other workers or prompts: judge both on the same"
            )
        at = {prompt: place for place, prompt in enumerate(other.ids)}
        order = [at[prompt] for prompt in self.ids]
        shared = [lam for lam in self.plays if lam in other.plays]
        if not shared:
            raise EvaluationError("the plays to compare with are at other lambdas")
        columns = [
            self.plays[lam].utility(lam) - other.plays[lam].utility(lam)[order] for lam in shared
        ]
        columns.append(np.mean(columns, axis=0))
        return dict(zip([*shared, None], resampling.of(columns), strict=True))


def encode(kept: list[Kept]) -> bytes:
    """All pools as npz, in order."""
    buffer = io.BytesIO()
    parts = {}
    for place, one in enumerate(kept):
        parts[f"{place} title"] = np.array(one.title)
        parts[f"{place} workers"] = np.array(one.workers)
        parts[f"{place} ids"] = np.array(one.ids)
        parts[f"{place} lambdas"] = np.array(list(one.plays))
        parts[f"{place} score"] = np.array([plays.score for plays in one.plays.values()])
        parts[f"{place} cost"] = np.array([plays.cost for plays in one.plays.values()])
    np.savez_compressed(buffer, allow_pickle=False, **parts)
    return buffer.getvalue()


def read(path: Path) -> list[Kept]:
    """Raises `EvaluationError` when the file is not there, or no such one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            parts = {name: file[name] for name in file.files}
        return [_pool(parts, place) for place in range(len(parts) // 6)]
    except (OSError, EOFError, KeyError, ValueError):
        raise EvaluationError(
            f"{path} holds no plays to compare with: cross-validate there first"
        ) from None


def _pool(parts: Mapping[str, np.ndarray], place: int) -> Kept:
    lambdas, score, cost = (parts[f"{place} {name}"] for name in ("lambdas", "score", "cost"))
    return Kept(
        str(parts[f"{place} title"]),
        tuple(map(str, parts[f"{place} workers"])),
        tuple(map(str, parts[f"{place} ids"])),
        {float(lam): Plays(s, c) for lam, s, c in zip(lambdas, score, cost, strict=True)},
    )
