"""From the daemon's feedback log to a training: judged over sockets, imported, learnt from."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from conductor.feedback.files import Lines
from conductor.feedback.record import line
from conductor.plan.language import parse
from conductor.planner.engine import Planned
from conductor_build.cli import conductor_build
from conductor_build.outcomes import load
from conductor_build.recipe import TableUse
from conductor_build.sources import read_sources
from conductor_build.train import train_bundle
from support.judged import KEEPS, answered, folder, judge, lines
from support.rounds import FINAL, LOOK, Scripted, Voice, ask, talking
from support.training import FakeReader, Quiet, recipe

VOICES = ("voice-0", "voice-1", "voice-2")
QUESTIONS = [f"What is {number} times seven?" for number in range(12)]
TRICK = "0 q Extract what is asked.\n1 0 Solve it.\n"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(conductor_build, ["outcomes", "import", *map(str, arguments)])


async def judged_day(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    """Every question is put to every voice, and to two of them one after the other; then to all,
    whose answers are looked at. All of it is judged, and the log is copied to `out`."""
    draw = random.Random(3)
    plans: list[Any] = [Planned(parse(f"{place} q -\n"), "default", log_prob=-0.5)
                        for _ in QUESTIONS for place in range(3)]  # fmt: skip
    plans += [(TRICK, FINAL), ("0 q -\n1 q -\n2 q -\n", LOOK), ("", FINAL)]
    voices = [Voice(f"The answer is {number}.") for number in (3, 5, 7)]
    async with talking(monkeypatch, Scripted(plans), *voices, appliance=KEEPS) as box:
        for text in [*(text for text in QUESTIONS for _ in VOICES), "A trick?", "All of you?"]:
            told = await ask(box, text=text)
            right = draw.random() < 0.3 + 0.3 * int(told.headers["x-conductor-model"][-1])
            done = await judge(box, told.headers["x-request-id"], float(right))
            assert done.json()["recorded"] is True
        written = (folder(box) / "feedback.jsonl").read_bytes()
    (out / "feedback.jsonl").write_bytes(written)


async def test_what_callers_judged_becomes_a_conductor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    await judged_day(monkeypatch, tmp_path)
    said = lines(tmp_path)
    prices = tmp_path / "prices.csv"
    prices.write_text("model,usd_out_per_mtok,kind\n" + "".join(f"{v},1,local\n" for v in VOICES))
    done = run(
        "feedback", tmp_path / "feedback.jsonl", "--out", tmp_path / "t", "--workers", prices
    )
    assert done.exit_code == 0, done.output
    table = load(tmp_path / "t")
    assert table.names == VOICES and len(table.prompts) == len(QUESTIONS) + 1
    assert "A trick?" not in table.questions  # its worker was not asked it alone
    scores = dict(zip(table.questions, table.score.tolist(), strict=True))
    for question in QUESTIONS:
        assert scores[question] == [one["score"] for one in said if one["question"] == question]
    trained = replace(recipe(6), tables=(TableUse("t", "t"),))
    out = tmp_path / "trained"
    read = read_sources(trained, tmp_path)
    bundle = train_bundle(trained, read, out, FakeReader(), watch=Quiet())
    cards = json.loads(bundle.read("pocket/cards.json"))
    assert list(cards) == list(VOICES) and all(card["local"] for card in cards.values())
    assert np.isfinite(read.parts[0].table.score).sum() == 3 * len(QUESTIONS) + 1


def log_of(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """A log of one line that the daemon would write, changed."""
    record = json.loads(line(answered(), 1.0, datetime(2026, 1, 31, tzinfo=UTC)))
    change(record)
    lines = Lines(path, 10**6, 1)
    lines.append(json.dumps(record).encode() + b"\n")
    lines.close()
    return path / "feedback.jsonl"


def test_a_line_of_the_daemon_is_read_as_it_is(tmp_path: Path) -> None:
    done = run("feedback", log_of(tmp_path, lambda _: None), "--out", tmp_path / "t")
    assert done.exit_code == 0, done.output
    assert load(tmp_path / "t").score.tolist() == [[1.0]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.pop("rounds"), "step and rounds are given together"),
        (lambda r: r.pop("step"), "step and rounds are given together"),
        (lambda r: r.update(step=1), "step must be one of the plans' steps"),
        (lambda r: r.update(step="0"), "step must be one of the plans' steps"),
        (lambda r: r.update(rounds=[]), "rounds must be a list that is not empty"),
        (lambda r: r["rounds"][0].pop("bundle"), "a round has the fields"),
        (lambda r: r["rounds"][0].update(plan="0 q"), "the plan of a round is no plan"),
        (lambda r: r["rounds"][0].update(plan=7), "the plan of a round is no plan"),
        (lambda r: r["rounds"][0].update(log_prob=1), "log_prob is out of range"),
        (lambda r: r.update(cost_usd=-1), "cost_usd is out of range"),
        (lambda r: r.update(cost_weight="0"), "cost_weight must be a number"),
        (lambda r: r.update(concludes=7), "concludes must be a text"),
        (lambda r: r.update(answer="12"), "not both"),
    ],
)
def test_a_line_that_was_changed_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    refused = run("feedback", log_of(tmp_path, change), "--out", tmp_path / "t")
    assert message in str(refused.exception)


def test_the_first_step_shown_everything_was_shown_the_question_alone(tmp_path: Path) -> None:
    source = log_of(tmp_path, lambda r: r["rounds"][0].update(plan="0 * -\n"))
    done = run("feedback", source, "--out", tmp_path / "t")
    assert done.exit_code == 0 and len(load(tmp_path / "t").prompts) == 1
