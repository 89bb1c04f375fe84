"""The exported network of a bundle, run in batches: what it is told is a `State`, as in training.

The planner process runs the same bytes one request at a time. Left out: what a choice means
(`environment.py`), and where the bytes come from (`bundle.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conductor.errors import BundleError
from conductor.planner.graph import FILE
from conductor.planner.manifest import Refusal
from conductor_build.pocket.state import State

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

AT_ONCE = 512
"""States in one run: they take some tens of megabytes over a pool of 16."""

Floats = NDArray[np.float32]


class Decoder:
    """One network. Raises `BundleError` when the bytes are none, or want other features."""

    def __init__(self, data: bytes, *, features: int, domains: int, threads: int = 2) -> None:
        self._session = _session(data, threads)
        self.features, self.domains = features, domains
        shapes = {one.name: one.shape for one in self._session.get_inputs()}
        wanted = {"prompt": features, "skill": domains, "cost": domains}
        outputs = {one.name for one in self._session.get_outputs()}
        if set(shapes) != set(State._fields) or not {"scores", "domain"} <= outputs:
            raise _unusable("it asks for other inputs, or gives other outputs")
        for name, width in wanted.items():
            if shapes[name][-1] != width:
                raise _unusable(f"its {name} has the width {shapes[name][-1]}, not {width}")

    def scores(self, state: State) -> Floats:
        """Scores of all choices, [B, 4K]."""
        (scores,) = self._session.run(["scores"], _inputs(state))
        return np.asarray(scores, np.float32)

    def likely_domains(self, prompt: Floats) -> NDArray[np.int64]:
        """The domain that each prompt [P, F] most likely belongs to, [P]."""
        found = [np.zeros(0, np.int64)]
        for start in range(0, len(prompt), AT_ONCE):
            part = prompt[start : start + AT_ONCE]
            (domain,) = self._session.run(["domain"], _nobody(part, self.domains))
            found.append(domain.argmax(1))
        return np.concatenate(found)


def _inputs(state: State) -> dict[str, NDArray[np.generic]]:
    return {name: part.numpy() for name, part in state._asdict().items()}


def _nobody(prompt: Floats, domains: int) -> dict[str, NDArray[np.generic]]:
    """The prompts with one worker that may not be asked: what a prompt is hangs on no worker."""
    count = len(prompt)
    none = np.zeros((count, 1), np.bool_)
    left = np.ones(count, np.int64)
    cards = np.full((count, 1, domains), 0.5, np.float32)
    return {
        "prompt": prompt, "skill": cards, "cost": cards, "present": none, "asked": none,
        "answer": np.full((count, 1), -1, np.int64), "pending": none,
        "weight": np.ones(count, np.float32),
        "rounds_left": left, "calls_left": left, "steps_left": left,
    }  # fmt: skip


def _session(data: bytes, threads: int) -> InferenceSession:
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what is wrong is raised
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  the library raises bare or private classes
        raise _unusable("it cannot be loaded") from None


def _unusable(why: str) -> BundleError:
    return BundleError(
        Refusal.FEATURES,
        f"{FILE} is no network that this release can run ({why}): use the release it was built "
        "with, or train it again",
    )
