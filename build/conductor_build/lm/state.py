"""Where a training of an LM conductor stands, on disk: enough to go on as if nothing had happened.

    run.json        which training this folder holds (`checkpoints.claim`)
    checkpoint.pt   trainable weights, the optimiser, evaluations, after so many iterations
    best.pt         the weights that did best on the watched games, and after which iteration

Whatever is drawn hangs on the seed and the iteration alone, so that no random state is kept. Every
file is replaced whole or not at all.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor_build.files import OutputError, replace_file

if TYPE_CHECKING:
    import torch

    from conductor_build.lm.policy import PlanPolicy

CHECKPOINT, BEST = "checkpoint.pt", "best.pt"


@dataclass
class Learner:
    """Everything that an iteration changes."""

    policy: PlanPolicy
    optimiser: torch.optim.Optimizer
    done: int = 0
    """Iterations so far, steps of the warm start among them."""
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    """What was measured on the way, in order."""
    best: float | None = None
    """Highest reward on the watched games since the warm start."""
    falls: int = 0
    """Evaluations in a row that were below it by more than is allowed."""
    stopped: bool = False
    """Training is over before its last iteration: reward fell."""


def save(out: Path, learner: Learner) -> None:
    """Write the checkpoint."""
    record = {
        "done": learner.done,
        "policy": learner.policy.state(),
        "optimiser": learner.optimiser.state_dict(),
        "evaluations": learner.evaluations,
        "best": learner.best,
        "falls": learner.falls,
        "stopped": learner.stopped,
    }
    replace_file(out / CHECKPOINT, _bytes(record))


def restore(out: Path, learner: Learner) -> None:
    """Go back to the checkpoint, if there is one."""
    record = _load(out / CHECKPOINT)
    if record is None:
        return
    learner.policy.load_state(record["policy"])
    learner.optimiser.load_state_dict(record["optimiser"])
    for name in ("done", "evaluations", "best", "falls", "stopped"):
        setattr(learner, name, record[name])


def save_best(out: Path, learner: Learner) -> None:
    """Keep the weights as the best so far."""
    record = {"done": learner.done, "policy": learner.policy.state()}
    replace_file(out / BEST, _bytes(record))


def restore_best(out: Path, learner: Learner) -> int | None:
    """Put the best weights back; the iteration that they are of, None when none were kept."""
    record = _load(out / BEST)
    if record is None:
        return None
    learner.policy.load_state(record["policy"])
    return int(record["done"])


def _bytes(record: Mapping[str, Any]) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(dict(record), buffer)
    return buffer.getvalue()


def _load(path: Path) -> dict[str, Any] | None:
    import torch

    if not path.exists():
        return None
    try:
        record: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception:  # noqa: BLE001  the library raises whatever its readers do
        raise OutputError(f"{path} is damaged: give a new folder, and train again") from None
    return record
