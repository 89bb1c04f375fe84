"""The box: driver, architecture, and the two packages that kernels need."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from importlib import metadata

from conductor_build.verify.finding import NO_GPU, Finding, Machine, absent, failed, passed
from conductor_kernels.architectures import ARCHITECTURES, best_for, name_of

_TRITON = "3.6"
"""The kernels' instructions were looked at as this one makes them."""
_TIME_S = 20


def driver(_machine: Machine) -> Iterator[Finding]:
    """As the driver's own program tells it."""
    asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=_TIME_S, check=True)  # noqa: S603
    except FileNotFoundError:
        yield absent("driver", "nvidia-smi is not installed: no NVIDIA driver on this box")
        return
    except (OSError, subprocess.SubprocessError):
        yield failed("driver", "nvidia-smi does not answer: look at `dmesg`, reload the driver")
        return
    yield passed("driver", "; ".join(done.stdout.split("\n")).strip("; ") or "no name")


def architecture(machine: Machine) -> Iterator[Finding]:
    """One that kernels were compiled for."""
    found = machine.capability
    if found is None:
        yield absent("architecture", NO_GPU)
    elif best := best_for(found, ARCHITECTURES):
        yield passed("architecture", f"{name_of(found)}, runs what is compiled for {best.name}")
    else:
        known = ", ".join(ARCHITECTURES)
        yield failed("architecture", f"{name_of(found)}: kernels are compiled for {known} alone")


def torch(machine: Machine) -> Iterator[Finding]:
    """Installed, and able to use the GPU where one is."""
    if not machine.has_torch:
        yield absent("torch", "not installed: docs/decisions/0015-two-locks-for-torch.md")
        return
    import torch as installed

    built = installed.version.cuda
    said = f"{installed.__version__}, built for {f'CUDA {built}' if built else 'CPUs'}"
    if machine.device_name == "cuda" and built and machine.device is None:
        yield failed("torch", f"{said}, sees no GPU: the driver may be older than it needs")
    elif machine.device_name == "cuda" and not built:
        yield absent("torch", f"{said}: install the build for CUDA to use a GPU")
    else:
        yield passed("torch", said)


def triton(machine: Machine) -> Iterator[Finding]:
    """Installed, or not needed: a compiled bundle brings machine code."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        yield absent("triton", "not installed: only a bundle compiled for this GPU can run")
        return
    known = version.startswith(_TRITON)
    said = version if known else f"{version}: kernels were written for {_TRITON}"
    yield passed("triton", said)
