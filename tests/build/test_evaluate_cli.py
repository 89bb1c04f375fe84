"""`conductor-build evaluate`: what is judged, on which prompts, with which cards; what is refused.

The conductor is an untrained one in a real bundle; only the sentence encoder is stood in for.
"""

from __future__ import annotations

import gzip
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from conductor.planner import encoderfiles
from conductor.planner.bundle import open_bundle
from conductor.planner.manifest import EncoderId
from conductor.planner.trust import PURPOSE
from conductor.process.keyfiles import load_public
from conductor.run.exchange import Limits
from conductor_build import grpo, record
from conductor_build.baselines.plays import EvaluationError, Prompts
from conductor_build.cli import conductor_build
from conductor_build.environment import hand
from conductor_build.evaluate import calibration
from conductor_build.evaluate.opened import Opened
from conductor_build.outcomes import Table, load
from conductor_build.pocket.conductor import Card, Playing, deck_of
from conductor_build.pocket.decoder import Decoder
from conductor_build.pocket.export import export
from conductor_build.pocket.state import State
from conductor_build.report import write
from support import pocket
from support.judging import TASKS, FakeReader, bundle, folder, outcomes, vectors_of
from support.outcomes import NAN

SEEN_WORKERS = 3


@pytest.fixture(scope="module")
def training() -> Table:
    return outcomes(80, seed=1, mark="training", workers=SEEN_WORKERS)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, training: Table) -> Path:
    """An untrained conductor's bundle; its key is beside it."""
    return bundle(tmp_path_factory.mktemp("made") / "b", training)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """120 prompts that are new, with a worker that is: d."""
    return folder(tmp_path_factory.mktemp("data") / "fresh", outcomes(120, seed=2, mark="fresh"))


@pytest.fixture(autouse=True)
def reader(monkeypatch: pytest.MonkeyPatch) -> FakeReader:
    fake = FakeReader()

    def load_fake(models: Path, wanted: EncoderId, *, threads: int = 2) -> FakeReader:
        assert wanted == fake.id
        return fake

    monkeypatch.setattr(encoderfiles, "load_encoder", load_fake)
    return fake


@pytest.fixture(autouse=True)
def no_picture(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than all the rest; `test_report.py` is about it."""
    if "picture" not in request.node.name:
        monkeypatch.setattr(write, "frontier_png", lambda evaluation: b"")


def run(made: Path, data: Path, out: Path, *more: str | Path) -> Result:
    told = [made, "--data", data, "--out", out, "--key", made.with_suffix(".pub"), "--draws", "20"]
    result = CliRunner().invoke(conductor_build, ["evaluate", *map(str, (*told, *more))])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def report(out: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads((out / "report.json").read_bytes())
    return read


def refused(result: Result, out: Path, code: int) -> str:
    """What was said. Nothing may be left that looks like a report."""
    assert (result.exit_code, result.stdout) == (code, "")
    assert not (out / "report.json").exists()
    assert "Traceback" not in result.stderr
    return result.stderr


# -- what is judged ---------------------------------------------------------------------------


def test_a_bundle_is_judged_beside_every_baseline_with_a_picture(
    made: Path, data: Path, tmp_path: Path
) -> None:
    result = run(made, data, tmp_path)
    assert result.exit_code == 0
    assert "| **conductor** |" in result.stdout and "best_fixed_per_task" in result.stdout
    found = report(tmp_path)
    rows = [row for row in found["rows"] if row["policy"] == "conductor"]
    assert [(row["pool"], row["lambda"], row["n"]) for row in rows] == [
        (["a", "b", "c"], 0.01, 120),
        (["a", "b", "c"], 0.1, 120),
        (["a", "b"], 0.0, 120),
    ]  # the pool and the lambdas of the recipe in the bundle, and its local workers alone
    assert all(0 <= row["accuracy"] <= 1 for row in rows)
    assert found["pools"][0]["baselines"] == "chosen and fitted on 80 training prompts"
    assert {"report.json", "report.md", "frontier.png"} <= {one.name for one in tmp_path.iterdir()}


def test_a_conductor_pays_for_what_it_asks_and_for_nothing_else(
    made: Path, data: Path, tmp_path: Path
) -> None:
    run(made, data, tmp_path, "--pool", "c")
    (own, single) = (
        [row for row in report(tmp_path)["rows"] if row["policy"] == name]
        for name in ("conductor", "single(c)")
    )
    for ours, theirs in zip(own, single, strict=True):  # a pool of one leaves no choice
        for name in ("accuracy", "cost_usd_per_1k", "utility"):
            assert ours[name] == pytest.approx(theirs[name])
        assert ours["n"] == theirs["n"] == 120


def test_pool_lambdas_and_rounds_are_what_is_asked_for(
    made: Path, data: Path, tmp_path: Path
) -> None:
    run(made, data, tmp_path, "--pool", "c,a", "--lambda", "0.3,2", "--max-rounds", "1")
    found = report(tmp_path)
    (pool,) = found["pools"]
    assert (pool["workers"], pool["lambdas"]) == (["c", "a"], [0.3, 2])
    assert found["provenance"]["max_rounds"] == 1


def test_only_local_workers_are_judged_when_asked(made: Path, data: Path, tmp_path: Path) -> None:
    run(made, data, tmp_path, "--local-only")
    assert {tuple(row["pool"]) for row in report(tmp_path)["rows"]} == {("a", "b")}
    said = refused(
        run(made, data, tmp_path / "2", "--local-only", "--pool", "c"), tmp_path / "2", 1
    )
    assert "no worker of the pool is local" in said


def test_the_same_command_gives_the_same_report_and_reads_each_prompt_once(
    made: Path, data: Path, tmp_path: Path, reader: FakeReader
) -> None:
    run(made, data, tmp_path)
    first, read = (tmp_path / "report.json").read_bytes(), len(reader.read)
    assert read == 120
    run(made, data, tmp_path)
    assert (tmp_path / "report.json").read_bytes() == first
    assert len(reader.read) == read


def test_where_answers_cannot_be_compared_one_round_is_played(
    made: Path, training: Table, tmp_path: Path
) -> None:
    """As in the table open9: scores from 0 to 1, no answers, no tokens; a call costs by size."""
    table = outcomes(60, seed=3, mark="scored", workers=3)
    blank = replace(
        table,
        score=(table.score * 0.5).astype(np.float32),
        answer=np.full_like(table.answer, -1),
        tokens=np.full_like(table.tokens, NAN),
        comparable=False,
    )
    run(made, folder(tmp_path / "data", blank), tmp_path / "out", "--pool", "a,b,c")
    rows = [row for row in report(tmp_path / "out")["rows"] if row["policy"] == "conductor"]
    for row in rows:
        calls = row["cost_usd_per_1k"] / 0.007  # 7 billion parameters / 1,000 a call
        assert calls == pytest.approx(round(calls * row["n"]) / row["n"])
        assert row["accuracy"] <= 0.5
    tasks = {
        row["task"] for row in report(tmp_path / "out")["tasks"] if row["policy"] == "conductor"
    }
    assert tasks == set(TASKS)


# -- prompts that training saw ----------------------------------------------------------------


def test_prompts_of_the_training_are_left_out_and_counted(
    made: Path, training: Table, tmp_path: Path
) -> None:
    fresh = outcomes(70, seed=2, mark="fresh", workers=3)
    questions = list(fresh.questions)
    questions[:10] = [f"  {question.upper()} " for question in training.questions[:10]]
    path = folder(tmp_path / "data", replace(fresh, questions=tuple(questions)))
    assert run(made, path, tmp_path / "out").exit_code == 0
    found = report(tmp_path / "out")
    assert {row["n"] for row in found["rows"]} == {60}
    assert found["provenance"]["prompts_seen_in_training"] == "10 (left out)"
    assert "warning" not in found["provenance"]


def test_nothing_but_the_training_is_no_judgement(
    made: Path, training: Table, tmp_path: Path
) -> None:
    path = folder(tmp_path / "data", training)
    said = refused(run(made, path, tmp_path / "out"), tmp_path / "out", 1)
    assert "trained on all 80 prompts" in said and "--allow-seen" in said


def test_judging_on_the_training_is_stamped_and_no_baseline_may_look(
    made: Path, training: Table, tmp_path: Path
) -> None:
    path = folder(tmp_path / "data", training)
    assert run(made, path, tmp_path / "out", "--allow-seen").exit_code == 0
    found = report(tmp_path / "out")
    assert {row["n"] for row in found["rows"]} == {80}
    assert "NOT A FAIR JUDGEMENT" in found["provenance"]["warning"]
    assert "NOT A FAIR JUDGEMENT" in (tmp_path / "out/report.md").read_text()
    assert found["pools"][0]["baselines"].startswith("cross-fitted")


# -- cards ------------------------------------------------------------------------------------


def test_a_new_worker_is_measured_on_prompts_that_nobody_is_judged_on(
    made: Path, data: Path, tmp_path: Path
) -> None:
    run(made, data, tmp_path, "--pool", "a,b,c,d", "--calibration", "30")
    found = report(tmp_path)
    assert {row["n"] for row in found["rows"]} == {90}
    assert found["provenance"]["cards"].startswith("of d from 30 calibration prompts")
    assert "cross-fitted" in found["pools"][0]["baselines"]  # training never saw d


def test_calibration_is_drawn_by_seed_and_shares_no_question_with_what_is_judged() -> None:
    table = outcomes(60, seed=4)
    doubled = replace(table, questions=tuple(f"Question {i // 2}" for i in range(60)))
    split = calibration.choose(doubled, ["d"], 20, 0)
    asked = {doubled.questions[row] for row in split.calibration}
    assert asked.isdisjoint(doubled.questions[row] for row in split.judged)
    assert len(split.calibration) == 20 and 20 <= len(split.judged) < 40
    turned = doubled.rows(np.arange(60)[::-1])
    again = calibration.choose(turned, ["d"], 20, 0)
    assert [turned.prompts[i] for i in again.calibration] == [
        doubled.prompts[i] for i in split.calibration
    ]
    other = calibration.choose(doubled, ["d"], 20, 1)
    assert set(other.calibration) != set(split.calibration)


def test_a_card_does_not_hang_on_judged_outcomes() -> None:
    training, table = outcomes(80, seed=1, workers=3), outcomes(60, seed=4)
    split = calibration.choose(table, ["d"], 20, 0)
    score = table.score.copy()
    score[split.judged] = 1 - score[split.judged]
    cards = [
        calibration.measured(training, one.rows(split.calibration), TASKS, ["d"])["d"]
        for one in (table, replace(table, score=score))
    ]
    assert np.array_equal(cards[0].skill, cards[1].skill)
    nothing = replace(table, score=np.zeros_like(score))
    worse = nothing.rows(split.calibration)
    assert (calibration.measured(training, worse, TASKS, ["d"])["d"].skill < cards[0].skill).all()


def test_too_few_prompts_to_calibrate_on_are_refused(
    made: Path, data: Path, tmp_path: Path
) -> None:
    pool = ("--pool", "a,d", "--calibration")
    said = refused(run(made, data, tmp_path, *pool, "121"), tmp_path, 1)
    assert "need 121 prompts" in said and "there are 120" in said
    assert "takes every prompt" in refused(run(made, data, tmp_path, *pool, "120"), tmp_path, 1)


def test_a_task_that_training_did_not_have_is_taken_for_a_domain_that_it_had(
    made: Path, tmp_path: Path
) -> None:
    strange = replace(outcomes(90, seed=2, mark="fresh"), tasks=("strange",) * 90)
    path = folder(tmp_path / "data", strange)
    assert run(made, path, tmp_path / "out", "--pool", "a,b,c,d").exit_code == 0
    assert {row["n"] for row in report(tmp_path / "out")["rows"]} == {40}


# -- playing ----------------------------------------------------------------------------------

LIMITS = Limits(max_rounds=4, max_calls=5)
SPREAD = 0.15
"""How far parameters are off: with more, one kind of choice is always best."""


def played(table: Table, cards: dict[str, Card], seed: int, limits: Limits = LIMITS) -> Playing:
    """An untrained network over the table's prompts."""
    files = export(pocket.perturbed(seed, spread=SPREAD), pocket.FACTS)
    decoder = Decoder(files["pocket/decoder.onnx"], features=pocket.FACTS.width, domains=4)
    return Playing(decoder, vectors_of(table.questions), cards, limits, 0.02)


def some_cards(table: Table) -> dict[str, Card]:
    draw = np.random.default_rng(0).uniform(0.2, 0.9, (len(table.names), 2, 4)).astype(np.float32)
    return {
        name: Card(s, 1000 * t, np.ones(len(s), np.bool_))
        for name, (s, t) in zip(table.names, draw, strict=True)
    }


def test_the_exported_network_plays_as_training_played_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Training asks one after the other; how the two differ is tested below.
    monkeypatch.setattr(Playing, "_partners", none_beside)
    rounds: set[int] = set()
    for seed in range(4):
        table = outcomes(150, seed=seed, workers=6)
        cards = some_cards(table)
        playing = played(table, cards, seed)
        network, rows = pocket.perturbed(seed, spread=SPREAD), np.arange(150)[::-1].copy()
        deck = deck_of(table, playing.vectors, cards)
        with torch.no_grad():
            domain, ease = network.read(deck.prompt)
        deck = replace(deck, domain=domain, ease=ease)
        places = torch.arange(6).expand(150, -1)
        dealt = hand(
            deck, torch.tensor(rows), places, torch.ones(150, 6, dtype=torch.bool),
            deck.skill[places], torch.ones(150, 6), torch.full((150,), 0.02), [LIMITS] * 150,
        )  # fmt: skip
        episodes = grpo.roll_out(network, deck, dealt, None).episodes
        plays = playing.play(table, rows)
        assert np.array_equal(plays.score, episodes.quality())
        assert plays.cost == pytest.approx(episodes.cost(), rel=1e-5)
        rounds |= set(episodes.rounds().tolist())
    assert len(rounds) > 1  # they are not all of one kind


def test_those_asked_side_by_side_are_those_who_would_be_asked_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = outcomes(150, seed=2, workers=6)
    playing = played(table, some_cards(table), 2)
    deck, rows = deck_of(table, playing.vectors, playing.cards), torch.arange(150)
    beside = playing._played(deck, rows)
    monkeypatch.setattr(Playing, "_partners", none_beside)
    after = playing._played(deck, rows)
    firsts = [plans[0].calls for plans in beside.plans]
    assert 2 in firsts and all(plans[0].calls == 1 for plans in after.plans)
    for place, (plans, one_by_one) in enumerate(zip(beside.plans, after.plans, strict=True)):
        pair = [step.worker for step in plans[0].steps]
        # These two would have been asked anyway, in that order, where the first one says something.
        if len(pair) == 2 and deck.answer[place, pair[0]] >= 0:
            assert pair == [step.worker for plan in one_by_one[:2] for step in plan.steps]


def none_beside(self: Playing, state: State, choice: torch.Tensor) -> torch.Tensor:
    return torch.full_like(choice, -1)


def test_what_keeping_an_answer_is_worth_does_not_hang_on_the_order_of_the_pool() -> None:
    network = pocket.perturbed(1, spread=SPREAD)
    state = pocket.states(np.random.default_rng(0), 50, 4)
    agreed = torch.tensor([True, True, False, False]).expand(50, -1)
    state = state._replace(
        present=torch.ones(50, 4, dtype=torch.bool),
        asked=agreed,
        answer=torch.where(agreed, 7, -1),
        pending=torch.zeros(50, 4, dtype=torch.bool),
    )
    order = torch.tensor([1, 0, 2, 3])
    turned = state._replace(skill=state.skill[:, order], cost=state.cost[:, order])
    with torch.no_grad():
        kept = [network(one)[0][:, 3 * 4 :].amax(1) for one in (state, turned)]
    assert torch.allclose(kept[0], kept[1], atol=1e-4)


def test_renaming_workers_changes_nothing() -> None:
    table = outcomes(100, seed=5, workers=5)
    cards = some_cards(table)
    before = played(table, cards, 1).play(table, np.arange(100))
    names = dict(zip("abcde", ["zoo", "y", "b", "a", "gpt"], strict=True))
    renamed = replace(
        table, workers=tuple(replace(one, name=names[one.name]) for one in table.workers)
    )
    known = {names[name]: card for name, card in cards.items()}
    after = played(renamed, known, 1).play(renamed, np.arange(100))
    assert np.array_equal(after.score, before.score)
    assert after.cost == pytest.approx(before.cost)


def test_a_prompts_plays_do_not_hang_on_those_beside_it() -> None:
    table = outcomes(700, seed=6, workers=3)  # more than go through the network at once
    playing = played(table, some_cards(table), 2)
    whole = playing.play(table, np.arange(700))
    for rows in ([699, 3], [17]):
        part = playing.play(table, rows)
        assert np.array_equal(part.score, whole.score[rows])
        assert np.array_equal(part.cost, whole.cost[rows])
    assert playing.play(table, []).score.shape == (0,)


def test_a_worker_without_a_recorded_answer_fails_and_costs_nothing() -> None:
    table = outcomes(40, seed=7, workers=3)
    silent = replace(
        table, score=np.full_like(table.score, NAN), answer=np.full_like(table.answer, -1)
    )
    plays = played(silent, some_cards(table), 1).play(silent, np.arange(40))
    assert not plays.score.any() and not plays.cost.any()


def test_answers_that_could_not_be_extracted_agree_with_none() -> None:
    table = outcomes(100, seed=8, workers=3)
    blank = replace(table, answer=np.where(np.arange(100)[:, None] < 40, -1, table.answer))
    plays = played(blank, some_cards(table), 1).play(blank, np.arange(40))
    assert np.isfinite(plays.score).all() and (plays.cost > 0).all()


def test_the_network_is_told_a_lambda_that_it_was_trained_on(made: Path) -> None:
    key = load_public(made.with_suffix(".pub"), PURPOSE)
    conductor = Opened.of(open_bundle(made, [key]))
    at = conductor.conductor(np.zeros((0, 1), np.float32), {}, LIMITS)
    assert [at(lam).weight for lam in (0.0, 0.1, 50.0)] == [0.003, 0.1, 2.0]


def test_a_worker_without_a_card_is_refused() -> None:
    table = outcomes(5, workers=3)
    cards = some_cards(table)
    del cards["b"]
    with pytest.raises(EvaluationError, match="no card of 'b'"):
        played(table, cards, 1).play(table, [0])


# -- bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (["--pool", "a,ghost"], "no worker 'ghost'; the table has a, b, c, d"),
        (["--pool", ""], "at least one name"),
        (["--pool", "a,a"], "each once"),
        (["--lambda", "often"], "numbers with commas"),
        (["--lambda", "-1"], "0 or more"),
        (["--lambda", "nan"], "0 or more"),
        (["--max-rounds", "0"], "max-rounds"),
        (["--calibration", "0"], "calibration"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused(
    made: Path, data: Path, tmp_path: Path, told: list[str], said: str
) -> None:
    assert said in refused(run(made, data, tmp_path, *told), tmp_path, 2)


def test_a_worker_that_never_answered_is_refused(made: Path, tmp_path: Path) -> None:
    table = outcomes(60, seed=2, mark="fresh", workers=3)
    score = table.score.copy()
    score[:, 2] = NAN
    path = folder(tmp_path / "data", replace(table, score=score))
    said = refused(run(made, path, tmp_path / "out", "--pool", "a,c"), tmp_path / "out", 2)
    assert "no worker 'c'" in said


def test_prompts_with_a_missing_outcome_are_left_out_for_all(made: Path, tmp_path: Path) -> None:
    table = outcomes(60, seed=2, mark="fresh", workers=3)
    score = table.score.copy()
    score[:5, 1] = NAN
    path = folder(tmp_path / "data", replace(table, score=score))
    assert run(made, path, tmp_path / "out", "--pool", "a,b,c").exit_code == 0
    assert {row["n"] for row in report(tmp_path / "out")["rows"]} == {55}


@pytest.mark.parametrize("value", ["nan", "NaN", "inf", "-1", "1.5", "right"])
def test_a_score_that_is_no_score_is_refused_with_its_line(
    made: Path, data: Path, tmp_path: Path, value: str
) -> None:
    path = folder(tmp_path / "data", outcomes(5, mark="fresh"))
    lines = gzip.decompress((path / "outcomes.csv.gz").read_bytes()).decode().splitlines()
    cells = lines[3].split(",")
    lines[3] = ",".join([*cells[:2], value, *cells[3:]])
    (path / "outcomes.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    said = refused(run(made, path, tmp_path / "out"), tmp_path / "out", 2)
    assert "outcomes.csv.gz:4: score is" in said


def test_no_answer_at_all_is_an_error_that_says_so(made: Path, tmp_path: Path) -> None:
    table = outcomes(40, seed=2, mark="fresh", workers=3)
    score = table.score.copy()
    score[np.arange(40), np.arange(40) % 3] = NAN  # each worker lacks a third: no prompt is whole
    path = folder(tmp_path / "data", replace(table, score=score))
    said = refused(run(made, path, tmp_path / "1", "--pool", "a,b,c"), tmp_path / "1", 1)
    assert "no prompt has outcomes of every worker" in said


def test_an_empty_folder_or_none_is_refused(made: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("empty", "none"):
        said = refused(run(made, tmp_path / name, tmp_path / "out"), tmp_path / "out", 2)
        assert "no such file" in said


def test_a_prompt_of_200_000_characters_is_judged_like_any_other(
    made: Path, tmp_path: Path
) -> None:
    table = outcomes(60, seed=2, mark="fresh", workers=3)
    long = ("fresh " + "x" * 199_994, *table.questions[1:])
    path = folder(tmp_path / "data", replace(table, questions=long))
    assert run(made, path, tmp_path / "out").exit_code == 0
    assert {row["n"] for row in report(tmp_path / "out")["rows"]} == {60}


def test_a_bundle_for_another_encoder_is_refused(
    training: Table, data: Path, tmp_path: Path
) -> None:
    other = bundle(tmp_path / "b", training, encoder=EncoderId("a" * 64, "b" * 64))
    said = refused(run(other, data, tmp_path / "out"), tmp_path / "out", 1)
    assert "trained with encoder" in said


def test_a_bundle_for_other_features_is_refused(
    training: Table, data: Path, tmp_path: Path
) -> None:
    other = bundle(tmp_path / "1", training, features=99)
    assert "features 99" in refused(run(other, data, tmp_path / "out"), tmp_path / "out", 1)
    facts = replace(pocket.FACTS, lexical=("length",))
    small = export(pocket.perturbed(1, facts), facts)
    other = bundle(tmp_path / "2", training, files=small)
    assert "other features" in refused(run(other, data, tmp_path / "out"), tmp_path / "out", 1)


NETWORKS: dict[str, Callable[[], bytes]] = {
    "none": lambda: b"weights",
    "of another width": lambda: export(
        pocket.perturbed(1, WIDE := replace(pocket.FACTS, lexical=("length",))), WIDE
    )["pocket/decoder.onnx"],
    "of other domains": lambda: export(pocket.perturbed(1), pocket.FACTS)["pocket/decoder.onnx"],
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_signed_network_that_does_not_fit_is_refused(
    training: Table, data: Path, tmp_path: Path, name: str
) -> None:
    other = bundle(tmp_path / "b", training, files={"pocket/decoder.onnx": NETWORKS[name]()})
    said = refused(run(other, data, tmp_path / "out"), tmp_path / "out", 1)
    assert "no network that this release can run" in said


@pytest.mark.parametrize("data_bytes", [b"", b"PK", b"\x93NUMPY"])
def test_a_bundle_without_its_outcomes_is_refused(
    training: Table, data: Path, tmp_path: Path, data_bytes: bytes
) -> None:
    other = bundle(tmp_path / "b", training, files={record.PATH: data_bytes})
    said = refused(run(other, data, tmp_path / "out"), tmp_path / "out", 1)
    assert "no record of outcomes" in said


def test_a_tampered_bundle_is_refused_and_none_at_all_is_another_thing(
    made: Path, training: Table, data: Path, tmp_path: Path
) -> None:
    other = bundle(tmp_path / "b", training)
    decoder = other / "pocket/decoder.onnx"
    decoder.write_bytes(decoder.read_bytes()[:-1] + b"!")
    said = refused(run(other, data, tmp_path / "out"), tmp_path / "out", 1)
    assert "not what the manifest says" in said
    shutil.rmtree(other)
    assert "no bundle is there" in refused(run(other, data, tmp_path / "out"), tmp_path / "out", 2)


def test_a_bundle_of_a_stranger_is_refused(made: Path, data: Path, tmp_path: Path) -> None:
    told = ["evaluate", made, "--data", data, "--out", tmp_path]
    result = CliRunner().invoke(conductor_build, [str(one) for one in told])
    assert "who may sign" in refused(result, tmp_path, 1)


def test_an_out_that_cannot_be_written_is_told(made: Path, data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run(made, data, tmp_path / "file" / "out")
    assert result.exit_code == 2 and "cannot be made" in result.stderr


# -- the record of training -------------------------------------------------------------------


def test_a_record_gives_the_outcomes_back_without_any_text(training: Table) -> None:
    prompts = Prompts(training, vectors_of(training.questions)[:, :384].astype(float))
    data = record.encode(prompts)
    assert data == record.encode(prompts)
    back = record.decode(data)
    for name in ("tasks", "workers", "comparable"):
        assert getattr(back.table, name) == getattr(training, name)
    for name in ("score", "answer", "tokens"):
        assert np.array_equal(getattr(back.table, name), getattr(training, name))
    assert back.embeddings == pytest.approx(prompts.embeddings, abs=1e-3)
    with np.load(io.BytesIO(data)) as parts:
        text = repr({name: parts[name].tolist() for name in parts.files if name != "embeddings"})
    assert "training" not in text  # which ids and questions begin with


def test_a_folder_reads_back_as_the_table_it_was_made_from(tmp_path: Path) -> None:
    table = outcomes(20)
    back = load(folder(tmp_path / "t", table))
    assert np.array_equal(back.score, table.score) and back.questions == table.questions
