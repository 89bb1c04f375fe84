"""What else may be on the box: a bundle's machine code, and TensorRT-LLM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from conductor.errors import ConductorError
from conductor.planner.bundle import Bundle, Runtime
from conductor.planner.bundlefolder import laid_out
from conductor.planner.kinds import LM
from conductor.planner.trust import resolve
from conductor_build.verify.finding import NO_GPU, Finding, Machine, absent, failed, passed
from conductor_build.verify.kernels import judged

if TYPE_CHECKING:
    import torch


def cubins(machine: Machine) -> Iterator[Finding]:
    """Machine code for this GPU, signed, whole and of this release; and every op on it, in
    bfloat16, which is what it is compiled for."""
    from conductor_kernels.kernelfile import FOLDER

    if machine.bundle is None:
        yield absent("cubins", "no bundle was named")
        return
    try:
        bundle = resolve(machine.bundle, machine.keys, Runtime(kind=LM.name))
    except ConductorError as error:
        yield failed("cubins", str(error))
        return
    if not any(name.startswith(f"{FOLDER}/") for name in bundle.manifest.files):
        yield absent("cubins", "the bundle holds none: `conductor-build compile` makes them")
    elif machine.device is None or machine.capability is None:
        yield absent("cubins", NO_GPU)
    else:
        yield from _loaded(bundle, machine.device, machine.seed)


def _loaded(bundle: Bundle, device: torch.device, seed: int) -> Iterator[Finding]:
    import torch

    from conductor_kernels.checks import cases
    from conductor_kernels.launch import use, use_bundle

    try:
        with laid_out(bundle) as folder:
            use_bundle(folder)
        yield passed("cubins", "loaded")
        compiled = (case for case in cases() if case.dtype in (torch.bfloat16, torch.int32))
        for one in judged(compiled, device, seed):
            yield replace(one, feature=f"cubins, {one.feature}")
    except ConductorError as error:
        yield failed("cubins", str(error))
    finally:
        use(None)


def tensorrt_llm(_machine: Machine) -> Iterator[Finding]:
    """Of a version that the adapter knows, with the signatures that it calls."""
    if find_spec("tensorrt_llm") is None:
        yield absent("TensorRT-LLM", "not installed: docs/tensorrt-llm.md")
        return
    from conductor_kernels.tensorrt_llm.versions import resolve

    try:
        api = resolve()
    except ConductorError as error:
        yield failed("TensorRT-LLM", str(error))
        return
    yield passed("TensorRT-LLM", f"{api.version}, every signature as it is called")
