"""Whether a plan broke alone, or the GPU with it.

After a fault in a kernel, such as an access where no memory is, CUDA refuses every further call of
the process (CUDA Runtime API, `cudaErrorIllegalAddress` and its like). Lack of memory is no such
fault.
"""

from __future__ import annotations

import torch

from conductor.planner.lm_runner import RunnerFailed, RunnerLost


def failure(message: str) -> RunnerFailed:
    """The error to tell whoever waits for a plan that broke. `message` names the kind alone."""
    return RunnerLost(f"{message}; the GPU answers no more") if _lost() else RunnerFailed(message)


def _lost() -> bool:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return False
    try:
        torch.cuda.synchronize()
    except Exception:  # noqa: BLE001  whatever it raises: it answers nothing
        return True
    return False
