"""What is looked at, in order: each thing after those that it stands on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conductor_build.verify import installed, kernels, machine, plans
from conductor_build.verify.finding import Feature, Finding, Machine, State, failed

FEATURES: tuple[tuple[str, Feature], ...] = (
    ("driver", machine.driver),
    ("architecture", machine.architecture),
    ("torch", machine.torch),
    ("triton", machine.triton),
    ("cubins", installed.cubins),
    ("ops", kernels.ops),
    ("CUDA graph", kernels.graph),
    ("plan", plans.plan),
    ("TensorRT-LLM", installed.tensorrt_llm),
)

NO_GPU = 2


def look(at: Machine, features: Sequence[tuple[str, Feature]] = FEATURES) -> Iterator[Finding]:
    """Every finding, as it is made."""
    for name, feature in features:
        try:
            yield from feature(at)
        except Exception as error:  # noqa: BLE001  a driver or a compiler may raise anything
            lines = str(error).strip().splitlines() or [""]
            yield failed(name, f"{type(error).__name__}: {lines[0][:200]}")


def exit_code(findings: Sequence[Finding], at: Machine) -> int:
    """0: whatever is here passes. 1: something fails. 2: there is no GPU to look at."""
    if any(one.state is State.FAIL for one in findings):
        return 1
    return NO_GPU if at.device is None else 0
