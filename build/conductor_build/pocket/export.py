"""A trained `Pocket` as the files that the planner process runs without torch.

    pocket/decoder.onnx   one decode step: the fields of `State` in, scores and beliefs out, batch
                          and pool of any size (`conductor.planner.graph`)
    pocket/facts.json     what it was trained on (`conductor.planner.facts`)

One graph per step, not an unrolled one: a plan has one to three lines mostly, and the prompt's own
part, which is computed again each time, is two small matrix products.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from conductor.planner import facts as factsfile
from conductor.planner import graph
from conductor.planner.facts import Facts
from conductor_build.pocket.network import Pocket
from conductor_build.pocket.state import State

OPSET = 17
_BATCH, _POOL = 2, 3
"""Of the example that the exporter traces; both axes are free in the graph."""


def export(pocket: Pocket, facts: Facts) -> dict[str, bytes]:
    """The bundle's files, by path; the same weights give the same bytes.

    Raises `BundleError` for facts that do not fit their form, `ValueError` for facts of another
    network.
    """
    if pocket.domain.weight.shape != (len(facts.domains), facts.width):
        raise ValueError("the facts are of another network: domains or features differ")
    return {graph.FILE: _onnx(pocket), factsfile.FILE: factsfile.encode(facts)}


class _Step(nn.Module):
    """`Pocket` with tensors only, and those outputs that are looked at."""

    def __init__(self, pocket: Pocket) -> None:
        super().__init__()
        self.pocket = pocket

    def forward(self, *fields: Tensor) -> tuple[Tensor, ...]:
        state = State(*fields)
        domain, ease = self.pocket.read(state.prompt)
        seen = self.pocket.see(state, domain, ease)
        scores = self.pocket.score(seen, state.present)
        return scores, seen.belief.right, seen.belief.accepted, seen.price, domain, ease


def _onnx(pocket: Pocket) -> bytes:
    outputs = graph.Seen._fields
    free: dict[str, dict[int, str]] = {name: {0: "batch"} for name in (*State._fields, *outputs)}
    for name in ("skill", "cost", "present", "asked", "answer", "pending", *outputs[1:4]):
        free[name][1] = "workers"
    free["scores"][1] = "choices"
    written = io.BytesIO()
    was_training = pocket.training
    with warnings.catch_warnings(), torch.no_grad(), _for_the_runtime():
        warnings.simplefilter("ignore")  # of its own age, and that shapes are traced
        torch.onnx.export(
            _Step(pocket).eval(),
            tuple(_example(pocket)),
            written,  # type: ignore[arg-type]
            input_names=list(State._fields),
            output_names=list(outputs),
            dynamic_axes=free,
            opset_version=OPSET,
            dynamo=False,
        )
    pocket.train(was_training)
    return written.getvalue()


@contextmanager
def _for_the_runtime() -> Iterator[None]:
    """While exporting, two operators are written in terms that ONNX Runtime computes rightly:
    choosing between flags as AND and OR, for which it has no `Where`; and the logarithm of a
    sigmoid as a softplus, since its sigmoid is nothing at all from about -18 downwards, where the
    logarithm is still an ordinary number."""
    from torch.onnx import symbolic_helper
    from torch.onnx.utils import register_custom_op_symbolic, unregister_custom_op_symbolic

    def where(g: Any, condition: Any, yes: Any, no: Any) -> Any:
        if not symbolic_helper._is_bool(yes):
            return g.op("Where", condition, yes, no)
        return g.op("Or", g.op("And", condition, yes), g.op("And", g.op("Not", condition), no))

    def log_sigmoid(g: Any, odds: Any) -> Any:
        return g.op("Neg", g.op("Softplus", g.op("Neg", odds)))

    ours: dict[str, Callable[..., Any]] = {"aten::where": where, "aten::log_sigmoid": log_sigmoid}
    for name, symbolic in ours.items():
        register_custom_op_symbolic(name, symbolic, OPSET)
    try:
        yield
    finally:
        for name in ours:
            unregister_custom_op_symbolic(name, OPSET)


def _example(pocket: Pocket) -> State:
    """Some state in which everything occurs: answers that agree, one pending, several rounds."""
    domains, features = pocket.domain.weight.shape
    flags = torch.zeros(_BATCH, _POOL, dtype=torch.bool)
    asked, pending = flags.clone(), flags.clone()
    asked[:, :2], pending[:, 2] = True, True
    numbers = torch.full((_BATCH,), 2)
    return State(
        prompt=torch.zeros(_BATCH, features),
        skill=torch.full((_BATCH, _POOL, domains), 0.5),
        cost=torch.full((_BATCH, _POOL, domains), 0.1),
        present=~flags,
        asked=asked,
        answer=torch.where(asked, 0, -1),
        pending=pending,
        weight=torch.full((_BATCH,), 0.1),
        rounds_left=numbers,
        calls_left=numbers,
        steps_left=numbers,
    )
