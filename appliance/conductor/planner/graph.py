"""The exported network of a pocket conductor, run by ONNX Runtime: `pocket/decoder.onnx`.

Its inputs are the fields of `features.State` and its outputs those of `Seen`, each with a leading
axis for the batch; axes K (candidates) and B (batch) are free. The build stage writes it
(`conductor_build.pocket.export`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from conductor.errors import StartError
from conductor.planner.features import Floats, State

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

FILE = "pocket/decoder.onnx"
KINDS = 4
"""Choices about a candidate, in blocks of K: MORE, LOOK, LAST, KEEP."""


class Seen(NamedTuple):
    """What the network makes of a state."""

    scores: Floats
    """[4K], see `KINDS`."""
    right: Floats
    """[K] chance that a worker who was not asked would be right."""
    accepted: Floats
    """[K] chance that the answer which a worker gave is right; 0 where there is none."""
    price: Floats
    """[K] lambda times the expected cost."""
    domain: Floats
    """[D] chance of each domain."""
    ease: Floats
    """How much easier than its domain the prompt is expected to be."""


class Graph:
    """One network. Any thread may call it."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    @classmethod
    def load(cls, onnx: bytes) -> Graph:
        """Raises `StartError` if these bytes are no such network."""
        from onnxruntime import InferenceSession, SessionOptions

        options = SessionOptions()
        # A step is well below a millisecond: handing parts of it to threads would take longer.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # what is wrong is raised
        try:
            session = InferenceSession(onnx, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  the library raises private classes
            kind = type(error).__name__
            raise StartError(f"the bundle's network cannot be loaded ({kind})") from None
        names = tuple(one.name for one in session.get_inputs())
        outputs = tuple(one.name for one in session.get_outputs())
        if set(names) != set(State._fields) or outputs != Seen._fields:
            raise StartError("the bundle's network has other inputs or outputs than this release")
        return cls(session)

    def __call__(self, state: State) -> Seen:
        """Run it. Raises `ArithmeticError` when what comes out are no numbers."""
        feed = {name: np.asarray(part)[None] for name, part in state._asdict().items()}
        seen = Seen(*(part[0] for part in self._session.run(None, feed)))
        if not all(np.isfinite(part).all() for part in seen):
            raise ArithmeticError("the network answers with what is no number")
        return seen
