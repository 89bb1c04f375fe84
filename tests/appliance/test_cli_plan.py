"""`conductor plan`: what would happen, and why the engine planned so, without a call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from conductor.cli.main import conductor
from conductor.plan.language import parse
from conductor.planner.engine import Insight, Planned
from support.configs import Tree, local_worker, remote_worker, write_site
from support.leaks import logged
from support.rounds import Scripted

THOUGHT = Planned(
    parse("0 q -\n"),
    "default",
    look=True,
    insight=Insight((0.61, 0.92), (0.97, 0.03), 0.0, 0.000125, 0.77),
)
MAY_WEIGH: Tree = {"keys": [{"id": "app", "secret": "file:app.key", "set_cost_weight": True}]}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    scripted = Scripted([THOUGHT])
    monkeypatch.setattr("conductor.run.services.DefaultEngine", lambda: scripted)
    monkeypatch.setenv("COLUMNS", "160")
    with logged():  # the command sets up logging for a process of its own
        yield scripted


def plan(directory: Path, *arguments: str, **changes: Any) -> Result:
    card = {"skill": {"math": 0.61, "general": 0.5}, "output_tokens_per_s": 5, "source": "measured"}
    workers = [local_worker("near", port=9, card=card), remote_worker("far")]
    config = write_site(directory, workers=workers, appliance={"paths": {"run": "r"}, **changes})
    return CliRunner().invoke(
        conductor, ["plan", "--config", str(config), *arguments, "What is 6 x 7?"]
    )


def test_it_shows_each_workers_card_and_what_the_engine_thought_of_it(
    tmp_path: Path, engine: Scripted
) -> None:
    told = plan(tmp_path)
    assert told.exit_code == 0, told.output
    rows = [" ".join(line.replace("│", " ").split()) for line in told.output.splitlines()]
    assert "0 near local math 0.61, general 0.50 0 in, 0 out 0.61 0.97" in rows
    assert "1 far remote general 0.80 1 in, 4 out 0.92 0.03" in rows
    assert "quality 0.77 expected of this round, for 0.000125 USD" in rows
    assert any(row.startswith("then the answers are looked at before") for row in rows)
    assert "weight 0.03 of quality for 1 USD per 1,000 requests" in rows
    assert "near" not in repr(engine.asked)


def test_the_same_as_json_and_with_a_cost_weight_of_ones_own(
    tmp_path: Path, engine: Scripted
) -> None:
    told = json.loads(plan(tmp_path, "--json", "--cost-weight", "0.5", **MAY_WEIGH).output)
    assert told["cost_weight"] == 0.5 == engine.asked[0].cost_weight
    assert told["look"] is True and told["estimates"]["expected_quality"] == 0.77
    assert [card["chance_chosen"] for card in told["cards"]] == [0.97, 0.03]


def test_a_key_without_a_say_in_it_is_told_so(tmp_path: Path, engine: Scripted) -> None:
    told = plan(tmp_path, "--cost-weight", "0.5")
    assert told.exit_code != 0 and engine.asked == []
    assert "set_cost_weight" in told.output + str(told.exception)


def test_without_insight_the_cards_are_shown_alone(tmp_path: Path, engine: Scripted) -> None:
    engine.script = [("0 q -\n", False)]
    told = plan(tmp_path)
    assert told.exit_code == 0 and "expected" not in told.output and "chances" not in told.output
    assert "then the answer goes to the client as it is written" in " ".join(told.output.split())


def test_an_engine_that_cannot_be_loaded_is_named_and_the_rule_plans(tmp_path: Path) -> None:
    with logged():
        told = plan(tmp_path, planner={"engine": "pocket"}, paths={"run": "r", "models": "none"})
    assert told.exit_code == 0, told.output
    assert "without 'pocket': the files of minilm-l6 are missing" in told.stderr
    assert "by the engine default in this process" in told.stdout
