"""A libcuda that runs nothing and remembers what it was asked: the real calling convention, no GPU.

Compiled from C where a compiler is; machine code that starts with "bad" is refused.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

SOURCE = r"""
#include <string.h>
typedef unsigned int U; typedef void *P;
#define MOST 64
static int capability[2], contexts, modules;
static struct { P function; U grid[3], block[3], shared; P stream; unsigned long long slots[MOST];
                int launches; } last;
static struct { P function; int attribute, value, times; } attribute;
static int count; static char entry[256], fails[64];
#define MAY_FAIL(name) if (!strcmp(fails, name)) return 999;

void fake_reset(int major, int minor, const char *name) {
  capability[0] = major; capability[1] = minor; strcpy(fails, name); count = 0;
  memset(&last, 0, sizeof last); memset(&attribute, 0, sizeof attribute); contexts = modules = 0; }
void fake_arguments(int n) { count = n; }
P fake_last(void) { return &last; }
P fake_attribute(void) { return &attribute; }
int fake_contexts(void) { return contexts; }
int fake_modules(void) { return modules; }
const char *fake_entry(void) { return entry; }

int cuInit(U flags) { MAY_FAIL("cuInit") return flags != 0; }
int cuGetErrorName(int code, const char **text) {
  *text = code == 209 ? "CUDA_ERROR_NO_BINARY_FOR_GPU" : "CUDA_ERROR_UNKNOWN"; return 0; }
int cuDeviceGet(int *device, int ordinal) {
  MAY_FAIL("cuDeviceGet") *device = ordinal + 40; return 0; }
int cuDeviceGetAttribute(int *value, int which, int device) {
  if (device < 40 || (which != 75 && which != 76)) return 1;
  *value = capability[which - 75]; return 0; }
int cuDevicePrimaryCtxRetain(P *context, int device) {
  *context = (P)(long)(device + 1000); return device < 40; }
int cuCtxSetCurrent(P context) { contexts++; return (long)context < 1040; }
int cuModuleLoadData(P *module, const char *code) {
  modules++; *module = (P)7; return memcmp(code, "bad", 3) ? 0 : 209; }
int cuModuleGetFunction(P *function, P module, const char *name) {
  strcpy(entry, name); *function = (P)(0x7000000000L + modules); return module != (P)7; }
int cuFuncSetAttribute(P function, int which, int value) {
  attribute.function = function; attribute.attribute = which; attribute.value = value;
  attribute.times++; return 0; }
int cuLaunchKernel(P function, U gx, U gy, U gz, U bx, U by, U bz, U shared, P stream,
                   P *arguments, P *extra) {
  MAY_FAIL("cuLaunchKernel")
  if (extra) return 1;
  last.function = function; last.shared = shared; last.stream = stream; last.launches++;
  last.grid[0] = gx; last.grid[1] = gy; last.grid[2] = gz;
  last.block[0] = bx; last.block[1] = by; last.block[2] = bz;
  for (int i = 0; i < count; i++) memcpy(&last.slots[i], arguments[i], 8);
  return 0; }
"""


class Launched(ctypes.Structure):
    """What the last launch was given."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("slots", ctypes.c_uint64 * 64),
        ("launches", ctypes.c_int),
    ]


class Attribute(ctypes.Structure):
    """What the last function attribute was set to."""

    _fields_ = [
        ("function", ctypes.c_void_p),
        ("attribute", ctypes.c_int),
        ("value", ctypes.c_int),
        ("times", ctypes.c_int),
    ]


class FakeDriver:
    """The library's other side."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._library = ctypes.CDLL(self.path)
        for name in ("fake_last", "fake_attribute"):
            getattr(self._library, name).restype = ctypes.c_void_p
        self._library.fake_entry.restype = ctypes.c_char_p

    def reset(self, capability: tuple[int, int] = (9, 0), failing: str = "") -> None:
        self._library.fake_reset(*capability, failing.encode())

    def expect(self, arguments: int) -> None:
        """How many pointers the next launches get, the scratch ones included."""
        self._library.fake_arguments(arguments)

    @property
    def launched(self) -> Launched:
        return Launched.from_address(self._library.fake_last())

    @property
    def attribute(self) -> Attribute:
        return Attribute.from_address(self._library.fake_attribute())

    @property
    def contexts(self) -> int:
        return int(self._library.fake_contexts())

    @property
    def modules(self) -> int:
        return int(self._library.fake_modules())

    @property
    def entry(self) -> str:
        return str(self._library.fake_entry().decode())

    def bytes_of(self, argument: int, size: int) -> bytes:
        return bytes(ctypes.c_uint64(self.launched.slots[argument]))[:size]


def compile_driver(folder: Path) -> FakeDriver | None:
    """None: there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return None
    source, library = folder / "fakecuda.c", folder / "libfakecuda.so"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, source], check=True)
    return FakeDriver(library)
