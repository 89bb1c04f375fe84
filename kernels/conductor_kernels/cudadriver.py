"""The few functions of NVIDIA's driver that start machine code, through ctypes.

A box that runs kernels compiled ahead of time needs the driver alone: no compiler, no toolkit, no
Triton. Names and numbers are those of the CUDA Driver API reference. torch works in the primary
context of its device; this retains the same one, so memory and streams are shared.
"""

from __future__ import annotations

import ctypes
import threading
from ctypes import POINTER, byref, c_char_p, c_int, c_uint, c_void_p
from typing import Any

from conductor.errors import StartError

LIBRARY = "libcuda.so.1"
WARP = 32
"""Threads."""
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
_MAX_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_SHARED_UNASKED = 48 * 1024
"""A block may have that much dynamic shared memory without asking."""
_OUT = POINTER(c_void_p)
_SIGNATURES: dict[str, list[Any]] = {
    "cuInit": [c_uint],
    "cuGetErrorName": [c_int, POINTER(c_char_p)],
    "cuDeviceGet": [POINTER(c_int), c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [_OUT, c_int],
    "cuCtxSetCurrent": [c_void_p],
    "cuModuleLoadData": [_OUT, c_char_p],
    "cuModuleGetFunction": [_OUT, c_void_p, c_char_p],
    "cuFuncSetAttribute": [c_void_p, c_int, c_int],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, POINTER(c_void_p), c_void_p],
}


class Device:
    """One GPU, as torch numbers them. Raises `StartError` wherever the driver says no."""

    def __init__(self, ordinal: int = 0, library: str = LIBRARY) -> None:
        self._calls = _open(library)
        self._on = threading.local()
        self._call("cuInit", 0)
        device = c_int()
        self._call("cuDeviceGet", byref(device), ordinal)
        self._device = device.value
        self._context = c_void_p()
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)

    @property
    def capability(self) -> tuple[int, int]:
        """Major and minor compute capability."""
        return self._attribute(_MAJOR), self._attribute(_MINOR)

    def load(self, code: bytes, entry: str, shared_bytes: int) -> int:
        """The function of that name in the machine code, ready to be started. It stays loaded."""
        self._enter()
        module, function = c_void_p(), c_void_p()
        self._call("cuModuleLoadData", byref(module), code)
        self._call("cuModuleGetFunction", byref(function), module, entry.encode())
        if shared_bytes > _SHARED_UNASKED:
            self._call("cuFuncSetAttribute", function, _MAX_SHARED, shared_bytes)
        return function.value or 0

    def launch(
        self,
        function: int,
        grid: tuple[int, int, int],
        warps: int,
        shared_bytes: int,
        stream: int,
        addresses: ctypes.Array[c_void_p],
    ) -> None:
        """Start it on the stream. `addresses` are those of its arguments' values."""
        self._enter()
        block = (warps * WARP, 1, 1)
        self._call("cuLaunchKernel", function, *grid, *block, shared_bytes, stream, addresses, None)

    def _enter(self) -> None:
        """Each thread has a current context of its own, and a thread that is new has none."""
        if not getattr(self._on, "it", False):
            self._call("cuCtxSetCurrent", self._context)
            self._on.it = True

    def _attribute(self, number: int) -> int:
        value = c_int()
        self._call("cuDeviceGetAttribute", byref(value), number, self._device)
        return value.value

    def _call(self, name: str, *arguments: Any) -> None:
        if failed := self._calls[name](*arguments):
            text = c_char_p()
            self._calls["cuGetErrorName"](failed, byref(text))
            said = (text.value or b"error").decode("ascii", "replace")
            raise StartError(f"the GPU's driver refused {name} ({said} {failed})")


def _open(library: str) -> dict[str, Any]:
    try:
        loaded = ctypes.CDLL(library)
        calls = {name: getattr(loaded, name) for name in _SIGNATURES}
    except (OSError, AttributeError):
        raise StartError(
            f"{library} is not there or too old: install NVIDIA's driver for this GPU"
        ) from None
    for name, arguments in _SIGNATURES.items():
        calls[name].argtypes, calls[name].restype = arguments, c_int
    return calls
