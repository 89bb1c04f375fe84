"""Rows taken before a table is unfolded: the same bits, and a process that stays small."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conductor.detect.namesproto import Writer, read_graph
from conductor.planner.encodergraph import rows_first
from conductor.workers.catalogue import load_catalogue
from conductor.workers.fetch import locate
from support.planner import ROOT

MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
MOST_BYTES = 300_000_000
"""What issue 3 gives the planner process, its peak included."""
FLOAT = 1
LOAD = """
import sys, pathlib
from conductor.planner.pocket import PocketEngine
PocketEngine.load(None, (), pathlib.Path(sys.argv[1]))
status = pathlib.Path("/proc/self/status").read_text()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
"""


def model(*, axis: int = 0, scale_rows: int = 5, twice: bool = False) -> bytes:
    """Rows of a table of 5 by 3 in 8 bits, multiplied by states: as the encoder has it."""
    draw, graph = np.random.default_rng(0), Writer()
    graph.input("states", ["rows", 3])
    graph.constant("rows", np.array([4, 0, 4, 2], np.int64))
    graph.constant("q", draw.integers(-128, 128, (5, 3)).astype(np.int8))
    graph.constant("s", draw.random((scale_rows, 1)).astype(np.float32))
    graph.node("Cast", ["q"], ["f"], to=FLOAT)
    graph.node("Mul", ["f", "s"], ["table"])
    graph.node("Gather", ["table", "rows"], ["few"], axis=axis)
    last = graph.node("Add", ["few", "states"] if axis == 0 else ["few", "few"], ["sum"])
    if twice:
        graph.constant("three", np.array([0, 1, 2, 3], np.int64))
        other = graph.node("Gather", ["table", "three"], ["more"], axis=0)
        last = graph.node("Add", [last, other], ["both"])
    graph.output(last, ["n", "m"])
    return graph.model()


def ran(data: bytes) -> Any:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    (out,) = session.run(None, {"states": np.random.default_rng(1).random((4, 3), np.float32)})
    return out


def kinds(data: bytes) -> list[str]:
    return [node.kind for node in read_graph(data)[0]]


def test_the_rows_come_first_and_the_same_bits_come_out() -> None:
    before, after = model(), rows_first(model())
    assert kinds(before) == ["Cast", "Mul", "Gather", "Add"]
    assert kinds(after) == ["Gather", "Gather", "Cast", "Mul", "Add"]
    assert np.array_equal(ran(before), ran(after))


def test_once_is_enough() -> None:
    assert rows_first(rows_first(model())) == rows_first(model())


@pytest.mark.parametrize("other", [{"axis": 1}, {"scale_rows": 1}, {"twice": True}])
def test_a_table_that_is_used_otherwise_is_left_as_it_is(other: dict[str, Any]) -> None:
    assert rows_first(model(**other)) == model(**other)


@pytest.mark.parametrize("junk", [b"\xff", b"\x3a\xff\x01", b"PK\x03\x04" * 9, b"\x38\x01"])
def test_what_is_no_model_is_a_value_error_or_left_alone(junk: bytes) -> None:
    try:
        assert rows_first(junk) == junk
    except ValueError:
        return


@pytest.mark.model
def test_the_published_encoder_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    from conductor.planner import encoder
    from conductor.planner.encoderfiles import load_encoder

    after = load_encoder(MODELS)
    monkeypatch.setattr(encoder, "rows_first", lambda graph: graph)
    before = load_encoder(MODELS)
    for text in ("", "How many?", "sea salt " * 300, "Größe, 你好 🙂"):
        assert np.array_equal(before.embed(text), after.embed(text))
    assert before.id == after.id


@pytest.mark.model
def test_loading_the_pocket_conductor_stays_below_what_it_may_take() -> None:
    if locate(MODELS, load_catalogue()["minilm-l6"]) is None:
        pytest.skip("run 'conductor models pull minilm-l6' first")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(MODELS)], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "appliance")},
    )  # fmt: skip
    assert int(done.stdout) * 1024 < MOST_BYTES
