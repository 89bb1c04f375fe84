"""Whether CUDA starts on this machine: by its own library, in a process that may hang or crash."""

from __future__ import annotations

import sys

from conductor.box.command import Run

LIMIT_S = 20
_ASK = """
import ctypes
driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
print(driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)), count.value)
"""
_TIMED_OUT = (124, 137)
"""Exit statuses of timeout(1)."""


def fault(run: Run) -> str:
    """Why CUDA cannot be used; "" when it can. Blocks for at most `LIMIT_S`, and a little."""
    ended = run(["timeout", "-k", "2", str(LIMIT_S), sys.executable, "-I", "-c", _ASK])
    if ended.code in _TIMED_OUT:
        return f"its driver does not answer within {LIMIT_S} s"
    words = ended.output.split()
    if not ended.good or len(words) != 2:
        return "its library cannot be loaded, or ends the process that loads it"
    error, devices = words
    if error != "0":
        return f"cuInit ends with error {error}"
    return "" if int(devices) else "it finds no device"
