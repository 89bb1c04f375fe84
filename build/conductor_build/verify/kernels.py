"""The ops on the device: as exact as they must be, and the same in a CUDA graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from conductor_build.verify.finding import NO_GPU, Finding, Machine, absent, failed, passed

if TYPE_CHECKING:
    import torch

    from conductor_kernels.checks import Case, Outcome

NO_TRITON = "without Triton only a bundle's machine code runs: see cubins"


def ops(machine: Machine) -> Iterator[Finding]:
    """One finding an op: all its cases on fresh inputs."""
    if machine.device is None:
        yield absent("ops against float64", NO_GPU)
    elif machine.lacks_compiler:
        yield absent("ops against float64", NO_TRITON)
    else:
        from conductor_kernels.checks import cases

        large = machine.device.type == "cuda"
        yield from judged(cases(large=large), machine.device, machine.seed)


def judged(cases: Iterator[Case], device: torch.device, seed: int) -> Iterator[Finding]:
    """Run them; one finding an op."""
    from conductor_kernels.checks import run

    found: dict[str, list[Outcome]] = {}
    for case in cases:
        found.setdefault(case.op, []).append(run(case, device, seed))
    for op, outcomes in found.items():
        yield _told(op, outcomes)


def _told(op: str, outcomes: list[Outcome]) -> Finding:
    bad = [one for one in outcomes if not one.passed]
    if not bad:
        worst = max(one.error / one.bound if one.bound else one.error for one in outcomes)
        return passed(op, f"{len(outcomes)} cases, at most {worst:.0%} of what is allowed")
    first = bad[0]
    how = first.problem or f"{first.error:.2g} where {first.bound:.2g} is allowed"
    return failed(op, f"{len(bad)} of {len(outcomes)} cases, first {first.name}: {how}")


def graph(machine: Machine) -> Iterator[Finding]:
    """A captured op, replayed on other numbers, gives what it gives when it is called."""
    if machine.device is None or machine.device.type != "cuda":
        yield absent("CUDA graph", NO_GPU)
        return
    if machine.lacks_compiler:
        yield absent("CUDA graph", NO_TRITON)
        return
    import torch

    from conductor_kernels.ops.norm import rms_norm

    x = torch.randn(2, 256, device=machine.device, dtype=torch.bfloat16)
    weight = torch.ones(256, device=machine.device, dtype=torch.bfloat16)
    rms_norm(x, weight, 1e-6)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out = rms_norm(x, weight, 1e-6)
    x.copy_(torch.randn_like(x))
    captured.replay()
    torch.cuda.synchronize()
    if torch.equal(out, rms_norm(x, weight, 1e-6)):
        yield passed("CUDA graph", "captured and replayed on other numbers")
    else:
        yield failed("CUDA graph", "a replay gives other numbers than a call")
