"""Compiled kernels from a bundle: those for this GPU, whole, started as they were built."""

from __future__ import annotations

import hashlib
import struct
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from conductor.errors import StartError
from conductor_kernels.architectures import ARCHITECTURES, best_for
from conductor_kernels.catalogue import source_hash
from conductor_kernels.cubins import Cubins, load_cubins
from conductor_kernels.cudadriver import Device
from conductor_kernels.kernelfile import Built, BuiltKernels, decode, encode
from conductor_kernels.kernelspec import Kernel
from support.fake_driver import FakeDriver, compile_driver

PACKAGE = "support.gated_kernels"
STREAM = 0x5151
ARGUMENTS = (
    ("weights", "*u8"),
    ("x", "*bf16"),
    ("rows", "i32"),
    ("far", "i64"),
    ("eps", "fp32"),
    ("last", "i1"),
    ("bias", "*fp32"),
)
BUILT = Built("weigh", 8, 3, 1024, ARGUMENTS, ("rows", "weights", "x"), {"BLOCK": 64}, "")
KERNEL = Kernel("weighs", None, dict(ARGUMENTS), {"BLOCK": 64})


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> FakeDriver:
    return compile_driver(tmp_path_factory.mktemp("driver")) or pytest.skip("no C compiler")


@pytest.fixture
def driver(compiled: FakeDriver) -> FakeDriver:
    compiled.reset()
    return compiled


def write(bundle: Path, name: str = "sm_90", code: bytes = b"code", **changes: Any) -> Path:
    """The bundle with one kernel for one architecture. `changes` of its record."""
    folder = bundle / "triton" / name
    folder.mkdir(parents=True)
    built = replace(BUILT, sha256=hashlib.sha256(code).hexdigest(), **changes.pop("built", {}))
    known = ARCHITECTURES[name]
    record = BuiltKernels(name, known.code, "3.6.0", source_hash(PACKAGE), {"weighs": built})
    (folder / "kernels.json").write_bytes(encode(replace(record, **changes)))
    (folder / "weighs.cubin").write_bytes(code)
    return bundle


def load(bundle: Path, driver: FakeDriver) -> Cubins:
    found = load_cubins(bundle, Device(0, driver.path), lambda: STREAM, PACKAGE)
    assert found
    return found


def refusal(bundle: Path, driver: FakeDriver) -> str:
    with pytest.raises(StartError) as caught:
        load(bundle, driver)
    return str(caught.value)


def values(**changed: Any) -> list[Any]:
    given: dict[str, Any] = {
        "weights": torch.zeros(64, dtype=torch.uint8),
        "x": torch.zeros(64, dtype=torch.bfloat16),
        "rows": 48,
        "far": -(2**40),
        "eps": 1e-6,
        "last": True,
        "bias": None,
    }
    return [*{**given, **changed}.values()]


# -- which code runs where ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("capability", "found"),
    [((8, 0), "sm_80"), ((8, 6), "sm_86"), ((8, 7), "sm_86"), ((8, 9), "sm_89"), ((9, 0), "sm_90"),
     ((10, 0), "sm_100"), ((12, 0), "sm_120"), ((7, 5), None), ((10, 3), None), ((12, 1), None),
     ((11, 0), None)],
)  # fmt: skip
def test_a_gpu_gets_the_nearest_code_that_runs_on_it(capability: Any, found: str | None) -> None:
    best = best_for(capability, ARCHITECTURES)
    assert (best and best.name) == found


def test_older_code_runs_on_a_newer_gpu_of_its_major_version_and_no_other() -> None:
    assert best_for((8, 9), ["sm_80", "sm_90"]) == ARCHITECTURES["sm_80"]
    assert best_for((8, 0), ["sm_86"]) is None
    assert best_for((9, 0), ["sm_89", "sm_100"]) is None


@pytest.mark.parametrize(("capability", "name"), [((9, 0), "sm_90"), ((8, 7), "sm_86")])
def test_another_gpu_is_refused_with_the_command_that_makes_it_right(
    tmp_path: Path, driver: FakeDriver, capability: tuple[int, int], name: str
) -> None:
    write(tmp_path, "sm_100")
    driver.reset(capability)
    said = refusal(tmp_path, driver)
    assert "compiled for sm_100" in said
    assert f"conductor-build compile BUNDLE --out NEW --arch {name}" in said


def test_a_gpu_that_nothing_can_be_compiled_for_is_told_so(
    tmp_path: Path, driver: FakeDriver
) -> None:
    driver.reset((7, 5))
    assert "as it was exported" in refusal(write(tmp_path), driver)


def test_a_bundle_without_compiled_kernels_is_no_error(tmp_path: Path, driver: FakeDriver) -> None:
    assert load_cubins(tmp_path, Device(0, driver.path), package=PACKAGE) is None


# -- what is there is checked ---------------------------------------------------------------------


def test_kernels_of_other_sources_are_refused(tmp_path: Path, driver: FakeDriver) -> None:
    said = refusal(write(tmp_path, source="0" * 64), driver)
    assert "other sources" in said
    assert "--arch sm_90" in said


def test_code_that_is_not_what_the_record_says_is_refused(
    tmp_path: Path, driver: FakeDriver
) -> None:
    (write(tmp_path) / "triton/sm_90/weighs.cubin").write_bytes(b"cod3")
    assert "weighs.cubin is not what" in refusal(tmp_path, driver)
    assert driver.modules == 0


@pytest.mark.parametrize("file", ["kernels.json", "weighs.cubin"])
def test_a_file_that_is_missing_is_named(tmp_path: Path, driver: FakeDriver, file: str) -> None:
    (write(tmp_path) / "triton/sm_90" / file).unlink()
    assert f"sm_90/{file} cannot be read" in refusal(tmp_path, driver)


def test_a_folder_moved_under_another_name_is_refused(tmp_path: Path, driver: FakeDriver) -> None:
    (write(tmp_path, "sm_80") / "triton/sm_80").rename(tmp_path / "triton/sm_90")
    assert "another architecture" in refusal(tmp_path, driver)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "kernels": {}}',
             b'{"format": 1, "kernels": {"a": {}}}', b'{"format": 1, "kernels": 3}',
             b'{"format": true, "kernels": {}}', b"[" * 100_000]
)  # fmt: skip
def test_a_record_of_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(StartError, match="compile the bundle again"):
        decode(data)


@pytest.mark.parametrize(
    ("built", "said"),
    [
        ({"warps": 0}, "0 warps"),
        ({"warps": 2**32 + 4}, "warps"),
        ({"shared_bytes": 2**32 + 1024}, "more shared memory"),
        ({"shared_bytes": 228 * 1024}, "more shared memory"),
        ({"entry": 7}, "name"),
        ({"entry": ""}, "name"),
        ({"arguments": (("x", "*bf17"),), "divisible": ()}, "type '[*]bf17'"),
        ({"arguments": (("x", "bf16"),), "divisible": ()}, "type 'bf16'"),
        ({"divisible": ("lost",)}, "does not take"),
    ],
)
def test_a_kernel_described_as_none_can_be_is_refused_before_any_code_is_loaded(
    tmp_path: Path, driver: FakeDriver, built: dict[str, Any], said: str
) -> None:
    with pytest.raises(StartError, match=said) as caught:
        load(write(tmp_path, built=built), driver)
    assert "--arch sm_90" in str(caught.value) and driver.modules == 0


@pytest.mark.parametrize("name", ["../sm_80/weighs", "/etc/passwd", "", "a" * 257, "a\n"])
def test_a_kernel_whose_name_leads_elsewhere_is_refused(
    tmp_path: Path, driver: FakeDriver, name: str
) -> None:
    built = replace(BUILT, sha256=hashlib.sha256(b"code").hexdigest())
    write(tmp_path, "sm_80")
    assert "name is none" in refusal(write(tmp_path, kernels={name: built}), driver)
    assert driver.modules == 0


def test_a_record_is_read_as_it_was_written() -> None:
    record = BuiltKernels("sm_90", "sm_90a", "3.6.0", "s", {"weighs": BUILT})
    assert decode(encode(record)) == record


# -- a launch -------------------------------------------------------------------------------------


def test_every_argument_reaches_the_driver_as_its_bytes(tmp_path: Path, driver: FakeDriver) -> None:
    cubins, given = load(write(tmp_path), driver), values()
    driver.expect(len(given) + 2)
    cubins.launch(KERNEL, (6, 2), given)
    sent, pointer = driver.bytes_of, struct.Struct("<Q").pack
    assert sent(0, 8) == pointer(given[0].data_ptr())
    assert sent(1, 8) == pointer(given[1].data_ptr())
    assert sent(2, 4) == struct.pack("<i", 48)
    assert sent(3, 8) == struct.pack("<q", -(2**40))
    assert sent(4, 4) == struct.pack("<f", 1e-6)
    assert sent(5, 1) == b"\x01"
    assert sent(6, 8) == pointer(0)
    assert [sent(7, 8), sent(8, 8)] == [pointer(0)] * 2  # scratch that nobody asked for


def test_grid_block_shared_memory_and_stream_are_those_asked_for(
    tmp_path: Path, driver: FakeDriver
) -> None:
    load(write(tmp_path), driver).launch(KERNEL, (6, 2), values())
    launched = driver.launched
    assert [*launched.grid] == [6, 2, 1]
    assert [*launched.block] == [8 * 32, 1, 1]
    assert (launched.shared, launched.stream) == (1024, STREAM)
    assert (launched.function, driver.entry) == (0x7000000001, "weigh")


@pytest.mark.parametrize(("shared", "times"), [(48 * 1024, 0), (48 * 1024 + 16, 1)])
def test_only_much_shared_memory_is_asked_for(
    tmp_path: Path, driver: FakeDriver, shared: int, times: int
) -> None:
    load(write(tmp_path, built={"shared_bytes": shared}), driver)
    asked = driver.attribute
    assert asked.times == times
    assert (asked.attribute, asked.value) == ((8, shared) if times else (0, 0))


def test_an_empty_grid_starts_nothing(tmp_path: Path, driver: FakeDriver) -> None:
    load(write(tmp_path), driver).launch(KERNEL, (0,), values())
    assert driver.launched.launches == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"x": torch.zeros(64)}, "x is no [*]bf16"),
        ({"x": torch.zeros(65, dtype=torch.bfloat16)[1:]}, "x is no multiple of 16"),
        ({"rows": 49}, "rows is no multiple of 16"),
        ({"rows": 2**31}, "rows is no i32"),
        ({"rows": 1.5}, "rows is no i32"),
        ({"eps": torch.ones(1)[:0]}, "eps is no fp32"),
        ({"more": 1}, "it takes 7 arguments, 8 are given"),
    ],
)
def test_what_a_kernel_was_not_built_for_is_refused(
    tmp_path: Path, driver: FakeDriver, changed: dict[str, Any], said: str
) -> None:
    cubins = load(write(tmp_path), driver)
    with pytest.raises(StartError, match=said):
        cubins.launch(KERNEL, (1,), values(**changed))
    assert driver.launched.launches == 0


def test_a_grid_that_is_too_large_is_refused(tmp_path: Path, driver: FakeDriver) -> None:
    with pytest.raises(StartError, match="grid"):
        load(write(tmp_path), driver).launch(KERNEL, (1, 2**16), values())


def test_a_kernel_that_the_bundle_lacks_is_named(tmp_path: Path, driver: FakeDriver) -> None:
    with pytest.raises(StartError, match="no kernel weighs_fp32"):
        load(write(tmp_path), driver).launch(replace(KERNEL, name="weighs_fp32"), (1,), [])


def test_each_thread_enters_the_context_once(tmp_path: Path, driver: FakeDriver) -> None:
    cubins = load(write(tmp_path), driver)
    cubins.launch(KERNEL, (1,), values())
    assert driver.contexts == 1

    def twice() -> None:
        for _ in range(2):
            cubins.launch(KERNEL, (1,), values())

    thread = threading.Thread(target=twice)
    thread.start()
    thread.join()
    assert (driver.contexts, driver.launched.launches) == (2, 3)


# -- the driver says no ---------------------------------------------------------------------------


def test_code_that_the_driver_does_not_take_is_an_error(tmp_path: Path, driver: FakeDriver) -> None:
    said = refusal(write(tmp_path, code=b"bad code"), driver)
    assert said == "the GPU's driver refused cuModuleLoadData (CUDA_ERROR_NO_BINARY_FOR_GPU 209)"


def test_a_launch_that_fails_is_an_error(tmp_path: Path, driver: FakeDriver) -> None:
    driver.reset((9, 0), "cuLaunchKernel")
    with pytest.raises(StartError, match="refused cuLaunchKernel"):
        load(write(tmp_path), driver).launch(KERNEL, (1,), values())


@pytest.mark.parametrize("library", ["libnosuchcuda.so.1", "libm.so.6"])
def test_a_machine_without_a_driver_is_told_so(library: str) -> None:
    with pytest.raises(StartError, match="install NVIDIA's driver"):
        Device(0, library)
