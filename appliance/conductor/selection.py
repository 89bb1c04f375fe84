"""What the client's `model` means: a conductor model, or one worker by its id.

The name says how to weigh cost against quality, and can narrow the pool. It never widens it: what
may be used is decided by label, policy and key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conductor.core import Preference, Worker
from conductor.errors import ModelNotAllowed, ModelNotFound


@dataclass(frozen=True)
class Selection:
    """A resolved model name. `worker` is set for a direct call, which is not planned."""

    model: str
    preference: Preference = "balanced"
    local_only: bool = False
    worker: Worker | None = None

    def includes(self, worker: Worker) -> bool:
        """Whether the name lets `worker` take part."""
        if self.worker is not None:
            return worker.id == self.worker.id
        return not (self.local_only and worker.remote)


CONDUCTOR_MODELS: Mapping[str, Selection] = {
    selection.model: selection
    for selection in (
        Selection("conductor"),
        Selection("conductor-local", local_only=True),
        Selection("conductor-thrifty", preference="thrifty"),
        Selection("conductor-quality", preference="quality"),
    )
}


def select(model: str, workers: Mapping[str, Worker], allowed: tuple[str, ...] | None) -> Selection:
    """Resolve a name for a key that may use `allowed` (None: all).

    Raises `ModelNotFound` for a name that does not exist, `ModelNotAllowed` for one the key lacks.
    """
    selection = CONDUCTOR_MODELS.get(model)
    if selection is None:
        worker = workers.get(model)
        if worker is None:
            raise unknown(model)
        selection = Selection(model, worker=worker)
    if allowed is not None and model not in allowed:
        raise ModelNotAllowed(
            f"This key may not use the model `{model}`. GET /v1/models lists those it may use.",
            param="model",
        )
    return selection


def unknown(model: str) -> ModelNotFound:
    """The 404 for a name that does not exist, or that the key may not know of."""
    return ModelNotFound(
        f"The model `{_printable(model)}` does not exist or you do not have access to it.",
        param="model",
    )


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in name[:100])
