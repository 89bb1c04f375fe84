"""A whole training by TRL: what it leaves, and how it is stopped and gone on with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from conductor_build.curves import read_as
from conductor_build.files import OutputError
from conductor_build.live.accounts import Account
from conductor_build.lm.base import load_base
from conductor_build.lm.draw import Ground
from conductor_build.lm.progress import LmLine
from conductor_build.lm.recipe import Adapter, HeldOut, WarmStart
from conductor_build.lm.setting import Setting
from conductor_build.lm.tokens import Writer
from conductor_build.lm.trl_run import here, train_trl
from conductor_build.lm.trl_settings import Machine, TrlError
from conductor_build.train import Stopped
from support import lmgames, lmparts

pytestmark = pytest.mark.filterwarnings(
    # TRL, peft and transformers of the lock, among themselves.
    "ignore:`(is_)?gradient_checkpointing:FutureWarning"
)
RECIPE = replace(
    lmparts.recipe(iterations=2, prompts=2, group=2, max_tokens=16),
    lora=Adapter(rank=4),
    held_out=HeldOut(games=2, parsing=0),
    warm_start=WarmStart(games=1, plans=2),
)
SMALL = Machine(plans_at_once=4)


class Watch:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[LmLine] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def iteration(self, line: LmLine, total: int) -> None:
        assert total == RECIPE.iterations
        self.lines.append(line)


def setting() -> Setting:
    torch.set_num_threads(1)
    base = load_base("tiny", models=lmparts.MODELS, dtype=torch.float32)
    ground = Ground(((lmgames.Named(), 1.0),), lmgames.workers())
    return Setting(
        base=base,
        writer=Writer.of(base, examples=0),
        training=ground,
        watched=ground,
        reported=ground,
        environment=lmgames.Stand(),
        data={},
        account=Account(),
    )


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Watch]]:
    """A training that a signal ended after its first batch."""
    out, watch = tmp_path_factory.mktemp("trl") / "out", Watch()
    with pytest.raises(Stopped, match="iteration 2 of 3"):
        train_trl(RECIPE, setting(), out, SMALL, watch=watch, signal=lambda: 15)
    yield out, watch


def test_a_signal_ends_a_training_with_a_checkpoint(stopped: tuple[Path, Watch]) -> None:
    out, watch = stopped
    assert [line.stage for line in watch.lines] == ["warm start", "plans"]
    assert not (out / "report.json").exists()
    with pytest.raises(OutputError, match="not empty"):
        train_trl(RECIPE, setting(), out, SMALL, watch=Watch())


def test_it_goes_on_and_leaves_weights_curves_and_a_report(stopped: tuple[Path, Watch]) -> None:
    out, watch = stopped[0], Watch()
    report = train_trl(RECIPE, setting(), out, SMALL, resume=True, watch=watch)
    assert [line.iteration for line in watch.lines] == [3]
    assert [line.iteration for line in read_as(LmLine, out)] == [1, 2, 3]
    found = json.loads(report.read_bytes())
    assert found["simulated"] is True
    assert set(found["moments"]) == {"untrained", "warm start", "trained"}
    weights = torch.load(out / "policy.pt")
    assert weights
    assert all("lora" in name for name in weights)


def test_nothing_is_written_for_a_recipe_that_trl_cannot_train(tmp_path: Path) -> None:
    with pytest.raises(TrlError):
        train_trl(
            RECIPE,
            None,  # type: ignore[arg-type]
            tmp_path / "out",
            replace(SMALL, vllm=True),
            watch=Watch(),
        )
    assert not (tmp_path / "out").exists()


def test_a_launcher_says_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    machine = here(vllm=True)
    assert (machine.processes, machine.sharded, machine.vllm) == (8, True, True)
