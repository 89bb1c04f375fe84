"""Training: what it leaves, and that nothing which interrupts it changes what comes out."""

from __future__ import annotations

import errno
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from conductor.errors import ConductorError
from conductor.planner.bundle import Bundle
from conductor.process.keyfiles import load_public
from conductor_build import checkpoints, curves, record, sources, train, train_progress
from conductor_build.cli import conductor_build
from conductor_build.curves import read_lines
from conductor_build.files import OutputError, replace_file
from conductor_build.outcomes import OutcomesError, Table
from conductor_build.recipe import Recipe, TableUse
from conductor_build.seen import PATH as SEEN
from conductor_build.seen import Seen
from conductor_build.sources import Source, Sources
from conductor_build.train import Stopped, train_bundle
from conductor_build.vectors import CACHE, prompt_vectors
from support.outcomes import NAN, generated, table
from support.training import FEATURES, FakeReader, Quiet, digest, recipe
from support.training import sources as tiny

KEPT = ("run.json", "fitted.pt", CACHE)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training that nothing interrupted."""
    out = tmp_path_factory.mktemp("train") / "out"
    run(out)
    return out


def run(
    out: Path,
    recipe: Recipe = recipe(),  # noqa: B008  frozen
    signal: Callable[[], int | None] = lambda: None,
    *,
    resume: bool = False,
    watch: Quiet | None = None,
) -> Bundle:
    return train_bundle(
        recipe, tiny(), out, FakeReader(), resume=resume, watch=watch or Quiet(), signal=signal
    )


@pytest.fixture
def begun(unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A training that was interrupted right before its first iteration. It will export
    and draw nothing: that takes longer than all the rest."""
    from conductor_build.pocket import export

    monkeypatch.setattr(export, "export", lambda pocket, facts: {"pocket/decoder.onnx": b"none"})
    monkeypatch.setattr(curves, "picture", lambda lines: b"none")
    out = tmp_path / "out"
    out.mkdir()
    for name in KEPT:
        shutil.copy(unbroken / name, out / name)
    return out


def numbers(out: Path) -> list[dict[str, object]]:
    """The curves, without what the clock says."""
    lines = [json.loads(line) for line in (out / "curves.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_the_bundle_holds_what_the_appliance_and_the_judge_need(unbroken: Path) -> None:
    trust = load_public(unbroken / "signing.key.pub", "bundle")
    from conductor.planner.bundle import open_bundle

    bundle = open_bundle(unbroken / "bundle", [trust])
    assert {
        "pocket/decoder.onnx", "pocket/facts.json", "pocket/seen.bin", "pocket/cards.json",
        "report/training.npz", "report/curves.jsonl", "report/curves.png",
    } == set(bundle.manifest.files)  # fmt: skip
    made = bundle.manifest.provenance
    assert made.data == {"t/outcomes.csv.gz": "c" * 64}
    assert made.recipe["hidden"] == 8
    assert made.summary["iterations"] == 60
    seen = Seen.from_bytes(bundle.read(SEEN))
    assert all(seen.contains(question) for question in tiny().questions)
    kept = record.decode(bundle.read(record.PATH))
    assert np.array_equal(kept.table.score, tiny().parts[0].table.score)
    assert kept.embeddings.shape == (40, 384)
    cards = json.loads(bundle.read("pocket/cards.json"))
    assert list(cards) == ["a", "b", "c", "d"]
    assert cards["a"]["local"] is True
    assert bundle.read("report/curves.png").startswith(b"\x89PNG")


def test_no_question_is_left_behind(unbroken: Path) -> None:
    for path in filter(Path.is_file, unbroken.rglob("*")):
        data = path.read_bytes()
        assert not any(question.encode() in data for question in tiny().questions), path.name


def test_every_stage_has_its_lines(unbroken: Path) -> None:
    lines = read_lines(unbroken)
    assert [line.iteration for line in lines] == list(range(1, 61))
    stages = ["warm", "learn", "plain", "copy", "whole"]
    assert [line.stage for line in lines] == [stage for stage in stages for _ in range(12)]
    assert all(0 <= line.accuracy <= 1 and line.rounds >= 1 for line in lines)


def test_killed_again_and_again_it_ends_with_the_same_weights(
    unbroken: Path, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "support.training", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=100, check=False,
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    kills, weights = done.stdout.split()
    assert int(kills) >= 3
    assert weights == digest(unbroken)
    assert numbers(tmp_path / "out") == numbers(unbroken)


def test_another_seed_gives_other_weights(begun: Path, unbroken: Path) -> None:
    """Even over the same fit: what is drawn differs."""
    other = replace(recipe(), seed=5)
    run_record = json.loads((begun / "run.json").read_text())
    run_record.update(recipe=other.sha256(), seed=5)
    (begun / "run.json").write_text(json.dumps(run_record))
    run(begun, other, resume=True)
    assert digest(begun) != digest(unbroken)


def test_an_ensemble_takes_turns_and_is_resumed_at_any(begun: Path, tmp_path: Path) -> None:
    three, one, other = replace(recipe(2), ensemble=3), tmp_path / "one", tmp_path / "other"
    run(one, three)
    watch = Quiet()
    with pytest.raises(Stopped, match="iteration 4 of 10"):
        run(other, three, lambda: 2 if len(watch.lines) == 4 else None, watch=watch)
    run(other, three, resume=True)
    assert digest(other) == digest(one)
    weights = torch.load(one / "pocket.pt", weights_only=True)["state"]
    mine = [weights[f"pointers.{member}.out.weight"] for member in range(3)]
    assert not torch.equal(mine[0], mine[1])
    assert not torch.equal(mine[1], mine[2])


@pytest.mark.parametrize("after", [1, 20, 40, 59])
def test_a_signal_stops_it_after_a_checkpoint_and_it_goes_on_from_there(
    begun: Path, unbroken: Path, after: int
) -> None:
    watch = Quiet()
    with pytest.raises(Stopped, match=f"after iteration {after} of 60; .* --resume") as stopped:
        run(
            begun,
            signal=lambda: 15 if len(watch.lines) == after else None,
            resume=True,
            watch=watch,
        )
    assert stopped.value.signal == 15
    with (begun / "curves.jsonl").open("a") as file:
        file.write('{"iteration": 999}\n{"half a')  # as after a kill between two checkpoints
    watch = Quiet()
    run(begun, resume=True, watch=watch)
    assert watch.lines[0].iteration == after + 1
    assert digest(begun) == digest(unbroken)
    assert numbers(begun) == numbers(unbroken)


def test_a_signal_while_questions_are_encoded_keeps_those_that_are(tmp_path: Path) -> None:
    reader, out = FakeReader(), tmp_path / "out"
    with pytest.raises(Stopped, match="encoding 7 of 40"):
        train_bundle(recipe(), tiny(), out, reader, watch=Quiet(),
                     signal=lambda: 2 if reader.embedded == 7 else None)  # fmt: skip
    again = FakeReader()
    prompt_vectors(tiny().questions, again, out / CACHE, lambda done, total: None)
    assert again.embedded == 33


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    begun: Path, unbroken: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, real = 0, os.fsync

    def fsync(descriptor: int) -> None:
        nonlocal synced
        synced += 1
        if synced > 12:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(OutputError, match=r"No space left.*before\s+is whole.*--resume"):
            run(begun, resume=True)
    watch = Quiet()
    run(begun, resume=True, watch=watch)
    assert watch.lines[0].iteration > 3
    assert digest(begun) == digest(unbroken)


def test_a_file_that_cannot_be_replaced_stays_and_leaves_no_part_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    replace_file(tmp_path / "x", b"before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputError, match="No space left"):
        replace_file(tmp_path / "x", b"after")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"before"]


def test_resuming_a_finished_training_changes_nothing(unbroken: Path) -> None:
    before = digest(unbroken)
    watch = Quiet()
    bundle = run(unbroken, resume=True, watch=watch)
    assert (digest(unbroken), watch.lines) == (before, [])
    assert bundle.manifest.provenance.summary["iterations"] == 60


def test_it_refuses_a_folder_with_something_in_it(tmp_path: Path, begun: Path) -> None:
    with pytest.raises(OutputError, match="not empty: give a new folder, or --resume"):
        run(begun)
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thesis.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds no training to resume"):
        run(tmp_path / "x", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be used"):
        run(tmp_path / "file")


def test_it_resumes_only_the_same_training(begun: Path) -> None:
    with pytest.raises(OutputError, match="another recipe"):
        run(begun, replace(recipe(), hidden=16), resume=True)
    other = Sources(tiny().parts, {"t/outcomes.csv.gz": "d" * 64})
    with pytest.raises(OutputError, match="another data"):
        train_bundle(recipe(), other, begun, FakeReader(), resume=True, watch=Quiet())


def test_two_do_not_work_in_one_folder(begun: Path) -> None:
    record = json.loads((begun / "run.json").read_text())
    with checkpoints.claim(begun, record, resume=True):
        with pytest.raises(OutputError, match="another training is at work"):
            run(begun, resume=True)


def test_a_damaged_checkpoint_is_told(begun: Path) -> None:
    (begun / "checkpoint.pt").write_bytes(b"PK not really")
    with pytest.raises(OutputError, match=r"checkpoint\.pt is damaged"):
        run(begun, resume=True)


def test_a_table_that_cannot_be_trained_on_is_told(tmp_path: Path) -> None:
    def refused(made: Table, said: str, use: TableUse = TableUse("t", "t")) -> None:  # noqa: B008
        given = Sources((Source(use, made),), {})
        with pytest.raises(ConductorError, match=said):
            train_bundle(
                recipe(), given, tmp_path / str(len(list(tmp_path.iterdir()))), FakeReader(),
                watch=Quiet(),
            )  # fmt: skip

    made, _ = generated(40)
    refused(replace(made, tasks=("No Name!",) * 40), "facts.json")
    unpriced = tuple(replace(worker, usd_out_per_mtok=NAN) for worker in made.workers)
    refused(replace(made, workers=unpriced), "fewer than two workers")
    some = (*made.workers[:2], *unpriced[2:])
    refused(replace(made, workers=some), "'c' of a pool", TableUse("t", "t", pool=("a", "c")))


# --- vectors


def test_vectors_are_kept_and_used_again(tmp_path: Path) -> None:
    cache, reader = tmp_path / CACHE, FakeReader()
    questions = ["one", "two", "one", "\ud800 no text"]
    first = prompt_vectors(questions, reader, cache, lambda done, total: None)
    assert first.shape == (4, FEATURES)
    assert np.array_equal(first[0], first[2])
    told: list[tuple[int, int]] = []
    more = prompt_vectors([*questions, "six"], reader, cache, lambda *at: told.append(at))
    assert reader.embedded == 4
    assert told == [(0, 1), (1, 1)]
    assert np.array_equal(more[:4], first)


@pytest.mark.parametrize("damage", ["other", "cut", "empty"])
def test_vectors_that_do_not_fit_are_made_anew(tmp_path: Path, damage: str) -> None:
    cache, reader = tmp_path / CACHE, FakeReader()
    first = prompt_vectors(["one"], reader, cache, lambda done, total: None)
    if damage == "cut":
        cache.write_bytes(cache.read_bytes()[:-40])
    elif damage == "empty":
        cache.write_bytes(b"")
    else:
        reader.id = replace(FakeReader.id, onnx="d" * 64)
    again = prompt_vectors(["one"], reader, cache, lambda done, total: None)
    assert reader.embedded == 2
    assert np.array_equal(again, first)


# --- sources


def write_folder(folder: Path, prompts: int = 30) -> Path:
    made, _ = generated(prompts)
    folder.mkdir(parents=True)
    with gzip.open(folder / "prompts.jsonl.gz", "wt") as file:
        for row in range(prompts):
            question = {"id": f"{folder.name}{row}", "task": made.tasks[row],
                        "question": f"{folder.name} asks {row}"}  # fmt: skip
            file.write(json.dumps(question) + "\n")
    with gzip.open(folder / "outcomes.csv.gz", "wt") as file:
        file.write("prompt_id,model,answer,score,output_tokens\n")
        for row in range(prompts):
            for at, name in enumerate(made.names):
                said, score, tokens = (
                    made.answer[row, at],
                    made.score[row, at],
                    made.tokens[row, at],
                )
                file.write(f"{folder.name}{row},{name},{said},{score},{tokens:.0f}\n")
    (folder.parent / "workers.csv").write_text(
        "model,usd_out_per_mtok\n"
        + "".join(f"{w.name},{w.usd_out_per_mtok}\n" for w in made.workers)
    )
    return folder


def two() -> Recipe:
    use = TableUse("x", "x", pool=("a", "b"), exclude=("d*",))
    return replace(recipe(), tables=(use, TableUse("y", "y")))


def test_a_parent_gives_every_table_and_a_folder_itself_only_its_own(tmp_path: Path) -> None:
    write_folder(tmp_path / "x")
    write_folder(tmp_path / "y")
    both = sources.read_sources(two(), tmp_path)
    assert [part.use.name for part in both.parts] == ["x", "y"]
    assert both.parts[0].table.names == ("a", "b", "c")
    assert sorted(both.data) == [
        "x/outcomes.csv.gz", "x/prompts.jsonl.gz", "x/workers.csv",
        "y/outcomes.csv.gz", "y/prompts.jsonl.gz", "y/workers.csv",
    ]  # fmt: skip
    only = sources.read_sources(two(), tmp_path / "y")
    assert [part.use.name for part in only.parts] == ["y"]
    assert only.data["y/workers.csv"] == both.data["y/workers.csv"]


def test_a_folder_that_the_recipe_does_not_name_is_drawn_from_without_its_pools(
    tmp_path: Path,
) -> None:
    (part,) = sources.read_sources(two(), write_folder(tmp_path / "z")).parts
    assert part.use == TableUse("z", "data", exclude=("d*",))
    assert part.table.names == ("a", "b", "c")


def test_a_missing_folder_and_an_unknown_worker_are_told(tmp_path: Path) -> None:
    write_folder(tmp_path / "x")
    with pytest.raises(OutcomesError, match="has no folder 'y'"):
        sources.read_sources(two(), tmp_path)
    wrong = replace(recipe(), tables=(TableUse("x", "x", pool=("a", "nobody")),))
    with pytest.raises(OutcomesError, match="'nobody'"):
        sources.read_sources(wrong, tmp_path)


def test_a_worker_of_two_tables_costs_in_each_what_it_costs_there_alone() -> None:
    """By tokens in one; in the other, which has none, by its size."""
    counted = table([[1.0, 0.0]], tokens=[[500, 800]])
    silent = table([[1.0, 1.0]], tokens=[[NAN, NAN]])
    silent = replace(silent, prompts=("q0",), workers=(silent.workers[1], replace(silent.workers[0], name="z")))  # fmt: skip  # noqa: E501
    one, other = (Source(TableUse(name, name), made) for name, made in
                  (("one", counted), ("other", silent)))  # fmt: skip
    whole = sources.joined([one, other])
    usd = dict(zip(whole.names, whole.cost()[1], strict=True))
    assert usd["b"] == pytest.approx(silent.cost()[0, 0])
    assert usd["z"] == pytest.approx(silent.cost()[0, 1])
    assert whole.cost()[0, :2] == pytest.approx(counted.cost()[0])


# --- the command

RECIPE = """\
tables: [{folder: x}]
network: {hidden: 4}
draw: {pool: 3}
stages: [{name: learn, method: grpo, iterations: 3, prompts: 2, group: 2}]
"""


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr("conductor.planner.encoderfiles.load_encoder", lambda *a, **k: FakeReader())
    (tmp_path / "r.yaml").write_text(RECIPE)
    data = write_folder(tmp_path / "x")
    return ["train", str(tmp_path / "r.yaml"), "--data", str(data), "--out", str(tmp_path / "out")]


def test_the_command_stops_by_ctrl_c_resumes_and_signs_with_the_key_given(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(self: train_progress.Plain, line: object, total: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(train_progress.Plain, "iteration", interrupted)
        stopped = CliRunner().invoke(conductor_build, command)
    assert stopped.exit_code == 130
    assert "after iteration 1 of 3; the same command with --resume goes on" in stopped.output
    key = tmp_path / "key"
    CliRunner().invoke(conductor_build, ["bundle", "keygen", "--out", str(key)])
    done = CliRunner().invoke(conductor_build, [*command, "--resume", "--sign-key", str(key)])
    assert done.exit_code == 0, done.output
    assert "learn 3/3" in done.output
    checked = CliRunner().invoke(
        conductor_build,
        ["bundle", "verify", str(tmp_path / "out" / "bundle"), "--key", f"{key}.pub"],
    )
    assert checked.exit_code == 0, checked.output


def test_sigterm_has_its_own_exit_code(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*a: object, **k: object) -> Bundle:
        os.kill(os.getpid(), signal.SIGTERM)
        asked = k["signal"]
        assert callable(asked)
        raise Stopped(asked(), "after iteration 0 of 3")

    monkeypatch.setattr(train, "train_bundle", stop)
    before = signal.getsignal(signal.SIGTERM)
    assert CliRunner().invoke(conductor_build, command).exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_torch_the_command_says_how_to_get_it(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    result = CliRunner().invoke(conductor_build, command)
    assert "make train-set" in str(result.exception)


def test_an_encoder_that_no_catalogue_has_is_told(command: list[str], tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text("encoder: gpt-9\n" + RECIPE)
    result = CliRunner().invoke(conductor_build, command)
    assert "minilm-l6" in str(result.exception)


def test_the_live_display_shows_what_the_lines_say() -> None:
    from io import StringIO

    from rich.console import Console
    from rich.progress import Progress, TextColumn

    line = replace(read_line(), stage="learn")
    console = Console(file=StringIO(), force_terminal=True, width=200)
    with Progress(TextColumn("{task.description}"), console=console) as bars:
        live = train_progress.Live(bars)
        live.encoded(1, 2)
        live.iteration(line, 10)
    said: list[str] = []
    plain = train_progress.Plain(said.append)
    plain.iteration(line, 10)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for part in ("learn 1/10", "100 episodes/s", "reward 0.5000", "accuracy 0.600", "ETA 0:18"):
        assert part in said[0]
        assert part in shown


def read_line() -> train.Line:
    return train.Line(1, "x", 0.5, 0.6, 0.7, 0.8, 1.5, 1.2, 0.0, episodes=200, seconds=2.0)


def test_threads_and_determinism_are_put_back(unbroken: Path) -> None:
    before = torch.get_num_threads(), torch.get_deterministic_debug_mode()
    run(unbroken, resume=True)
    assert (torch.get_num_threads(), torch.get_deterministic_debug_mode()) == before
