"""Starting a kernel: by Triton's compiler, or by machine code that takes its place."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from conductor.errors import StartError
from conductor_kernels.catalogue import catalogued, source_hash
from conductor_kernels.kernelspec import Kernel
from conductor_kernels.launch import launch, use, use_bundle
from support import gated_kernels

WITHOUT_TRITON = """
import sys
sys.modules["triton"] = None
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "triton" else found(name, *rest)
import pkgutil
import conductor_kernels.ops as ops
for module in pkgutil.iter_modules(ops.__path__):
    importlib.import_module(f"conductor_kernels.ops.{module.name}")
assert not [name for name in sys.modules if name.startswith("triton.")]
"""


class Function:
    """Stands for a `jit` function: remembers how it was started."""

    arg_names = ("x", "rows", "BLOCK")

    def __init__(self) -> None:
        self.started: list[tuple[Any, dict[str, Any]]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda **given: self.started.append((grid, given))


class Recorder:
    def __init__(self) -> None:
        self.started: list[Any] = []

    def launch(self, kernel: Kernel, grid: tuple[int, ...], arguments: Sequence[Any]) -> None:
        self.started.append((kernel.name, grid, arguments))


def kernel(**changes: Any) -> Kernel:
    given: dict[str, Any] = {
        "name": "one",
        "function": Function(),
        "signature": {"x": "*fp32", "rows": "i32"},
        "constants": {"BLOCK": 64},
        "warps": 8,
        "stages": 3,
    }
    return Kernel(**{**given, **changes})


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    yield
    use(None)


def test_without_machine_code_the_compiler_starts_it() -> None:
    one = kernel()
    launch(one, (4,), ["x", 3])
    expected = {"x": "x", "rows": 3, "BLOCK": 64, "num_warps": 8, "num_stages": 3}
    assert one.function.started == [((4,), expected)]


def test_machine_code_takes_the_compilers_place_until_it_is_put_back() -> None:
    one, recorder = kernel(), Recorder()
    use(recorder)
    launch(one, (4,), ["x", 3])
    use(None)
    launch(one, (5,), ["x", 3])
    assert recorder.started == [("one", (4,), ["x", 3])]
    assert [grid for grid, _ in one.function.started] == [(5,)]


def test_a_bundle_without_machine_code_leaves_it_to_the_compiler(tmp_path: Path) -> None:
    use(Recorder())
    assert use_bundle(tmp_path) is False
    one = kernel()
    launch(one, (1,), ["x", 3])
    assert one.function.started


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"signature": {"rows": "i32", "x": "*fp32"}}, "in order"),
        ({"signature": {"x": "*fp32"}}, "in order"),
        ({"constants": {"BLOCK": 64, "LOST": 1}}, "LOST is no argument"),
        ({"divisible": frozenset({"BLOCK"})}, "BLOCK is no argument"),
        ({"signature": {"x": "*bf16", "rows": "bf16"}}, "nothing of type bf16"),
        ({"signature": {"x": "*complex", "rows": "i32"}}, "nothing of type [*]complex"),
        ({"name": "Not/plain"}, "its name"),
    ],
)
def test_a_kernel_whose_description_is_wrong_is_not_listed(
    changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(StartError, match=said):
        catalogued([kernel(**changes)])


def test_two_kernels_of_one_name_are_not_listed() -> None:
    with pytest.raises(StartError, match="two kernels are called one"):
        catalogued([kernel(), kernel()])


def test_a_kernel_that_two_modules_list_is_there_once() -> None:
    one = kernel()
    assert catalogued([one, one]) == {"one": one}


def test_the_hash_of_sources_changes_with_any_of_them() -> None:
    one, all_ops = source_hash("support.gated_kernels"), source_hash()
    assert one == source_hash("support.gated_kernels")
    assert len({one, all_ops, source_hash("support.fake_driver")}) == 3
    assert gated_kernels.KERNELS


def test_every_op_is_imported_where_triton_is_not() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_TRITON], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
