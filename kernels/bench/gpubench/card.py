"""On what a figure was measured: card, driver, versions, commit."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import torch

_PACKAGES = ("torch", "triton", "numpy", "transformers", "vllm", "tensorrt_llm", "xgrammar")

Facts = dict[str, str | int | float | None]


def facts(device: torch.device, root: Path) -> Facts:
    """Of this machine and this checkout."""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": _said(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"]),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        **{name: _version(name) for name in _PACKAGES},
        **(_card(device) if device.type == "cuda" else {"card": None}),
    }


def _card(device: torch.device) -> Facts:
    held = torch.cuda.get_device_properties(device)
    driver = _said(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return {
        "card": held.name,
        "capability": f"{held.major}.{held.minor}",
        "multiprocessors": held.multi_processor_count,
        "memory_gib": round(held.total_memory / 2**30, 1),
        "l2_mib": round(l2_bytes(device) / 2**20, 1),
        "driver": driver,
        "cuda": torch.version.cuda,
    }


def l2_bytes(device: torch.device) -> int:
    """Of the second-level cache; on a CPU something small, for a dry run."""
    if device.type != "cuda":
        return 1
    return int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 64 << 20))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _said(command: list[str]) -> str | None:
    """First line that it prints; None where it cannot be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stdout.splitlines()
    return lines[0].strip() if lines else None
