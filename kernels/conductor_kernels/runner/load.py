"""From a checkpoint's folder to a decoder that runs here, or a clear word why not."""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from conductor.errors import StartError
from conductor.planner.lm_runner import RunnerSettings
from conductor_kernels.launch import use_bundle
from conductor_kernels.ops.attention import HEAD_DIMS
from conductor_kernels.runner.cache import Cache
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.shape import Shape, read_shape
from conductor_kernels.runner.weights import Checkpoint

log = logging.getLogger(__name__)

_MEMINFO = Path("/proc/meminfo")
_GB = 1e9
_COLUMNS = 64
"""What `conductor_kernels.ops.linear` and its like ask of a width."""


def load_decoder(folder: Path, settings: RunnerSettings, *, packed: bool | None = None) -> Decoder:
    """The decoder with an empty cache, of the checkpoint in a bundle's folder. `packed`: whether
    matrices stay as the bundle packs them; None: on a GPU (`packed.py` says why).

    Raises `StartError` for a checkpoint that this decoder cannot run, a device that is not there,
    and one whose memory is too small, before anything of that size is taken.
    """
    device = _device(settings)
    dtype = _dtype(settings, device)
    shape = read_shape(folder)
    if device.type == "cuda":
        check_kernels(shape)
        use_bundle(folder.parent, device.index or 0)
    packed = device.type == "cuda" if packed is None else packed
    with Checkpoint(folder, shape) as checkpoint:
        numbers = shape.cache_numbers * settings.cache_tokens
        # What a step takes beside weights and cache is small.
        needed = checkpoint.size(dtype, packed=packed) + numbers * dtype.itemsize
        _check_room(needed, device)
        try:
            weights = checkpoint.read(device, dtype, packed=packed)
            cache = Cache(shape, settings.cache_tokens, device, dtype)
        except (torch.OutOfMemoryError, MemoryError):
            raise _too_large(needed, device) from None
        except RuntimeError as error:
            # On a CPU torch says so in words only.
            if "memory" not in str(error):
                raise
            raise _too_large(needed, device) from None
    return Decoder(shape, weights, cache)


def check_kernels(shape: Shape) -> None:
    """Raises `StartError` for sizes that the kernels do not read."""
    widths = (shape.hidden, shape.inner, shape.heads * shape.head_dim)
    if shape.head_dim not in HEAD_DIMS or any(width % _COLUMNS for width in widths):
        raise StartError(
            f"on a GPU the runner takes models whose heads have {' or '.join(map(str, HEAD_DIMS))} "
            f"numbers, and whose other widths are multiples of {_COLUMNS}: set its device to cpu"
        )


def _device(settings: RunnerSettings) -> torch.device:
    there = torch.cuda.is_available()
    if settings.device == "cuda" and not there:
        raise StartError("no GPU that torch can use is there: set the runner's device to cpu")
    if settings.device == "auto":
        if torch.version.cuda and not there:
            log.warning("this torch is built for GPUs and can use none: the model runs on the CPU")
        return torch.device("cuda" if there else "cpu")
    return torch.device(settings.device)


def _dtype(settings: RunnerSettings, device: torch.device) -> torch.dtype:
    if settings.dtype == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    known: torch.dtype = getattr(torch, settings.dtype)
    return known


def _check_room(needed: int, device: torch.device) -> None:
    """An operating system promises memory that it does not have, and kills who uses it."""
    free = _free(device)
    if free is not None and needed > free:
        raise _too_large(needed, device, free)


def _free(device: torch.device) -> int | None:
    """Free bytes of its memory; None where nobody says."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _too_large(needed: int, device: torch.device, free: int | None = None) -> StartError:
    there = "" if free is None else f", {free / _GB:.1f} GB are free"
    return StartError(
        f"the model and its cache take {needed / _GB:.1f} GB of {device.type} memory{there}: take "
        "a smaller or quantised bundle, a shorter dtype, or fewer cache_tokens"
    )
