"""The benchmark of a GPU box runs from end to end on a CPU, and claims nothing there."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

RUN = Path(__file__).parents[2] / "kernels" / "bench" / "run.py"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(RUN.parent), *sys.path])
    spec = importlib.util.spec_from_file_location("gpubench_run", RUN)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def part(run: ModuleType) -> Any:
    return lambda name: importlib.import_module(f"gpubench.{name}")


def a_row(part: Any, **more: Any) -> Any:
    return part("parts").Part("one", "One", 5.0, **more)


def results(part: Any, **tables: list[dict[str, Any]]) -> Any:
    made = part("results")
    found = made.Results(True, {"when": "now", "card": "H200"})
    found.tables += [made.Table(name, name, rows) for name, rows in tables.items()]
    return found


# -- the command ------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(run: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_full_sizes_do_not_run_on_a_cpu(run: ModuleType) -> None:
    assert run.main(["--device", "cpu"]) == 2


def test_a_part_that_there_is_not_is_named(run: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no part speed; there are: ceilings, checks"):
        run.main(["--device", "cpu", "--tiny", "--part", "speed"])


def test_every_part_runs_on_a_cpu_and_measures_nothing(
    run: ModuleType, part: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = part("others")
    fake = replace(others.OTHERS[0], package="nobody_has_this")
    monkeypatch.setattr(others, "OTHERS", (fake, *others.OTHERS[1:]))
    asked = ["--device", "cpu", "--tiny", "--quick", "--seed", "3", "--out", str(tmp_path)]
    assert run.main(asked) == 0
    said = json.loads((tmp_path / "results.json").read_text())
    assert said["measured"] is False
    assert list(said["parts"]) == ["ceilings", "checks", "ops", "step", "plan", "others"]
    for name, table in said["parts"].items():
        assert table["complete"], (name, table["left_out"])
        assert table["rows"], name
        for row in table["rows"]:
            timed = [row[column] for column in row if column in TIMES]
            assert timed == [None] * len(timed), (name, row)
    told = (tmp_path / "results.md").read_text()
    assert "nothing here is a measurement" in told
    assert "| met |" in told and "not measured" in told and "not met" not in told


TIMES = {
    "ms", "us", "floor us", "over floor", "of copy bandwidth", "GB/s", "TFLOP/s", "constrained ms",
    "unconstrained ms", "constrained / unconstrained", "floor ms", "tokens/s", "plan s",
    "first token ms", "ms a token",
}  # fmt: skip


# -- parts and their time ---------------------------------------------------------------------


def run_one(part: Any, limit_s: float = 5.0, **more: Any) -> Any:
    found, after = results(part), []
    one = a_row(part, **more)
    part("results").run_all(None, [one, one], found, limit_s, after.append)
    assert after == found.tables, "told after each part"
    return found.tables


def test_a_part_that_breaks_keeps_its_rows_and_the_next_runs(part: Any) -> None:
    def rows(_bench: Any) -> Iterator[dict[str, Any]]:
        yield {"at": 1}
        raise RuntimeError("no memory")

    first, second = run_one(part, rows=rows)
    assert first.rows == second.rows == [{"at": 1}]
    assert first.left_out == "it broke: RuntimeError: no memory"


def test_a_part_stops_when_its_time_is_over(part: Any) -> None:
    def rows(_bench: Any) -> Iterator[dict[str, Any]]:
        for at in range(9):
            time.sleep(0.02)
            yield {"at": at}

    first, second = run_one(part, limit_s=0.03, rows=rows)
    assert first.rows and len(first.rows) < 9
    assert "time was over" in first.left_out
    assert second.left_out == "no time was left"


def test_what_others_print_beside_their_rows_is_not_read(part: Any) -> None:
    printed = 'loading\n{"what": "free", "batch": 1}\n{"level": "info"}\nINFO done\n'
    assert list(part("others")._read(printed)) == [{"what": "free", "batch": 1}]


# -- what is computed -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "head", "gigabytes"),
    [("dense", "dense", 14.23), ("fp8", "fp8", 7.16), ("int4", "dense", 4.64)],
)
def test_a_step_reads_what_was_counted_by_hand(
    part: Any, kind: str, head: str, gigabytes: float
) -> None:
    shape = part("sizes").QWEN_7B
    work = part("floors").step(shape, kind, 1, 1_500, 128, head)
    assert work.bytes / 1e9 == pytest.approx(gigabytes, rel=0.03)
    assert work.floor(4.8e12, 1e15) == work.bytes / 4.8e12, "memory is what takes the time"


def test_goals_are_judged_by_the_rows(part: Any) -> None:
    step = {"kind": "fp8", "batch": 1, "of copy bandwidth": 0.61,
            "constrained / unconstrained": 1.05, "in a text to the end": True}  # fmt: skip
    plan = {"kind": "int4", "batch": 1, "plan s": 0.25, "tokens": 140, "prefix": 1_216}
    slow = {**plan, "kind": "fp8", "plan s": 0.36}
    found = results(part, checks=[{"passed": True}], step=[step], plan=[slow, plan])
    verdicts = {goal.text: goal.verdict for goal in part("goals").goals(found)}
    assert verdicts["ops that differ from float64 by more than their bound"] == "met"
    assert verdicts["decode step, fp8, batch 1: share of copy bandwidth"] == "met"
    assert verdicts["decode step, fp8, batch 1: constrained / unconstrained"] == "not met"
    assert verdicts["decode step, int4, batch 1: share of copy bandwidth"] == "not measured"
    assert verdicts["plan of 140 tokens, int4, cached prefix: seconds"] == "met"
    assert verdicts["plan of 140 tokens, fp8, cached prefix: seconds"] == "not met"


def test_a_larger_batch_is_not_judged_by_the_goal_of_one(part: Any) -> None:
    found = results(part, plan=[{"kind": "fp8", "batch": 4, "plan s": 0.1}])
    verdicts = {goal.text: goal.verdict for goal in part("goals").goals(found)}
    assert verdicts["plan of 140 tokens, fp8, cached prefix: seconds"] == "not measured"


def test_what_was_cut_short_meets_no_goal(part: Any) -> None:
    plan = {"kind": "fp8", "batch": 1, "plan s": 0.1, "tokens": 90, "prefix": 1_216}
    step = {"kind": "fp8", "batch": 1, "of copy bandwidth": 0.9, "in a text to the end": False}
    found = results(part, checks=[{"passed": True}], plan=[plan], step=[step])
    found.tables[0].left_out = "its time was over"
    assert {goal.verdict for goal in part("goals").goals(found)} == {"not measured"}
    found.tables[0].rows.append({"passed": False})
    assert next(iter(part("goals").goals(found))).verdict == "not met"


@pytest.mark.parametrize("moved", [4e5, 1e6, 3e7, 1e9])
def test_inputs_in_turn_are_larger_than_the_cache(part: Any, moved: float) -> None:
    assert part("ops").copies_for(moved, 60 << 20) * moved > 2 * (60 << 20)


def test_every_op_of_the_model_has_inputs_that_are_larger_than_the_cache(part: Any) -> None:
    sizes, ops, cache = part("sizes").FULL, part("ops"), 50 << 20
    bench = part("parts").Bench(torch.device("cpu"), sizes, None)
    for batch in sizes.batches:
        for one in ops._of_batch(bench, batch):
            assert ops.copies_for(one.work.bytes, cache) * one.work.bytes > 2 * cache, one.op


def test_rows_of_the_head_are_others_each_time_and_listed_in_order(
    part: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, listed = part("calls"), list[torch.Tensor]()
    monkeypatch.setattr(calls, "_choose", lambda *given: listed.append(given[3]))
    bench = part("parts").Bench(torch.device("cpu"), part("sizes").TINY, None)
    calls.choose_of_rows(bench, 1, 5)
    assert len({tuple(rows.tolist()) for rows in listed}) == 5
    assert all(bool((rows.diff() > 0).all()) for rows in listed)


def test_the_made_up_vocabulary_has_every_byte_and_no_double(part: Any) -> None:
    texts, end = part("vocabulary").spellings(2_000)
    assert len(texts) == 2_000 and end == 1_999 and texts[end] is None
    assert len(set(texts)) == 2_000
    assert texts[:256] == [bytes([byte]) for byte in range(256)]


def test_the_roofline_is_drawn_where_it_can_be(part: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ceilings = part("parts").Ceilings(4.3e12, 4.1e12, 7.9e14)
    row = {"op": "linear", "kind": "fp8", "us": 20.0, "bytes": 7e7, "flops": 1.4e8}
    part("picture").draw(results(part, ops=[row]), ceilings, tmp_path / "roofline.png")
    assert (tmp_path / "roofline.png").read_bytes().startswith(b"\x89PNG")
    part("picture").draw(results(part), ceilings, tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()
