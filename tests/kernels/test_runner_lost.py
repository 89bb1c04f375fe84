"""A GPU that answers no more is told apart from a plan that broke."""

from __future__ import annotations

import pytest
import torch

from conductor.planner.lm_runner import RunnerFailed, RunnerLost
from conductor_kernels.runner.lost import failure


def fault() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.mark.parametrize(
    ("used", "answer", "kind"),
    [(True, fault, RunnerLost), (True, lambda: None, RunnerFailed), (False, fault, RunnerFailed)],
    ids=["a fault", "no fault", "no GPU in use"],
)
def test_only_a_gpu_that_answers_no_more_is_lost(
    monkeypatch: pytest.MonkeyPatch, used: bool, answer: object, kind: type[Exception]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: used)
    monkeypatch.setattr(torch.cuda, "synchronize", answer)
    error = failure("the runner broke (ValueError)")
    assert type(error) is kind
    assert str(error).startswith("the runner broke (ValueError)") and "illegal" not in str(error)
