"""Measured cards: in workers.yaml, where planners see them, and in `conductor models cards`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from conductor.cli.models import models
from conductor.core import Card
from conductor.errors import ConfigError, StartError
from conductor.workers.cardsfile import CardsError, decode, read_cards
from support.configs import load, local_worker, write_site

CARD = {"skill": {"math": 0.8}, "output_tokens_per_s": 40.5, "source": "measured", "verbosity": 1.3}
MATH = {"asked": 10, "right": 8, "share": 0.8, "low": 0.49, "high": 0.94, "output_tokens": 70.5,
        "usd_per_1k": 0.25}  # fmt: skip


def measured(**changes: Any) -> dict[str, Any]:
    one = {"model": "a", "card": CARD, "domains": {"math": MATH}, "void": {"worker:timeout": 2},
           "price": {"input_usd_per_mtok": 0.5, "output_usd_per_mtok": 2},
           "latency_s": {"median": 1.5, "p95": 4.25}}  # fmt: skip
    return {**one, **changes}


def document(**workers: Any) -> dict[str, Any]:
    when = (datetime.now(UTC) - timedelta(days=3)).isoformat(timespec="seconds")
    return {"version": 1, "measured_at": when, "tasks": "x", "settings": "y", "questions": 60,
            "workers": workers}  # fmt: skip


def site(directory: Path, found: Any, *workers: dict[str, Any], named: str = "cards.json") -> Path:
    write_site(directory, workers=workers)
    (directory / "cards.json").write_bytes(orjson.dumps(found))
    pool = json.loads((directory / "workers.yaml").read_text())
    (directory / "workers.yaml").write_text(json.dumps({"cards": named, **pool}, indent=1))
    return directory


def faults(directory: Path) -> list[tuple[str, int]]:
    with pytest.raises(ConfigError) as caught:
        load(directory)
    return [(fault.code, fault.line) for fault in caught.value.faults]


def bare(name: str) -> dict[str, Any]:
    worker = local_worker(name, port=9)
    del worker["card"]
    return worker


# -- in workers.yaml ------------------------------------------------------------------------------


def test_a_measured_card_counts_in_place_of_the_declared_one(tmp_path: Path) -> None:
    one = load(site(tmp_path, document(a=measured()), local_worker("a", port=9))).workers[0]
    assert one.card == Card({"math": 0.8}, 40.5, "measured", 1.3)
    assert one.price.free, "prices are what workers.yaml says"


def test_a_measured_worker_needs_no_card_of_its_own(tmp_path: Path) -> None:
    assert load(site(tmp_path, document(a=measured()), bare("a"))).workers[0].card.verbosity == 1.3


@pytest.mark.parametrize("found", [{}, {"a": measured(card=None, domains={}, latency_s=None)}])
def test_a_worker_without_a_measured_card_needs_its_own(tmp_path: Path, found: Any) -> None:
    declared = local_worker("a", port=9)
    assert load(site(tmp_path, document(**found), declared)).workers[0].card.source != "measured"
    assert [code for code, _ in faults(site(tmp_path, document(**found), bare("a")))] == [
        "missing-key"
    ]


def test_a_faulty_declared_card_is_told_though_a_measured_one_counts(tmp_path: Path) -> None:
    wrong = local_worker("a", port=9, card={**CARD, "verbosity": 0})
    assert [c for c, _ in faults(site(tmp_path, document(a=measured()), wrong))] == ["bad-value"]


def test_a_card_measured_with_another_model_is_a_fault_at_the_worker(tmp_path: Path) -> None:
    directory = site(tmp_path, document(a=measured(model="b")), bare("a"))
    ((code, line),) = faults(directory)
    lines = (directory / "workers.yaml").read_text().splitlines()
    assert (code, '"model"' in lines[line - 1]) == ("bad-cards", True)


@pytest.mark.parametrize("named", ["none.json", "."])
def test_a_file_that_is_not_there_is_one_fault_at_its_name(tmp_path: Path, named: str) -> None:
    directory = site(tmp_path, document(), bare("a"), bare("b"), named=named)
    assert faults(directory) == [("bad-cards", 2)]


def changed(*keys: str, to: Any) -> bytes:
    whole: Any = orjson.loads(orjson.dumps(document(a=measured())))
    inner = whole
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = to
    return orjson.dumps(whole)


WORKER = ("workers", "a")
BAD: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "another version": changed("version", to=2),
    "no time": changed("measured_at", to="soon"),
    "workers as a list": changed("workers", to=[]),
    "a share above 1": changed(*WORKER, "card", "skill", to={"math": 1.5}),
    "no skill": changed(*WORKER, "card", "skill", to={}),
    "a domain with orders to a terminal": changed(*WORKER, "card", "skill", to={"\x1b[2J": 0.5}),
    "a declared card": changed(*WORKER, "card", "source", to="declared"),
    "no speed": changed(*WORKER, "card", "output_tokens_per_s", to=0),
    "speed as text": changed(*WORKER, "card", "output_tokens_per_s", to="40"),
    "verbosity true": changed(*WORKER, "card", "verbosity", to=True),
    "a model of two lines": changed(*WORKER, "model", to="a\nb"),
    "an interval upside down": changed(*WORKER, "domains", "math", "low", to=0.99),
    "nobody asked": changed(*WORKER, "domains", "math", "asked", to=0),
    "more right than asked": changed(*WORKER, "domains", "math", "right", to=11),
    "a negative price": changed(*WORKER, "price", "input_usd_per_mtok", to=-1),
    "latency as a number": changed(*WORKER, "latency_s", to=1.5),
    "half a void": changed(*WORKER, "void", to={"x": 0.5}),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_wrong_anywhere_is_refused_as_a_whole(name: str) -> None:
    with pytest.raises(CardsError) as caught:
        decode(BAD[name])
    assert str(caught.value).isprintable()


def test_a_wrong_file_is_a_fault_of_the_configuration(tmp_path: Path) -> None:
    directory = site(tmp_path, document(a=measured()), bare("a"))
    (directory / "cards.json").write_bytes(BAD["a share above 1"])
    assert faults(directory) == [("bad-cards", 2)]


def test_what_the_probe_writes_is_what_is_read(tmp_path: Path) -> None:
    from conductor.core import TcpEndpoint
    from conductor_build import probe_cards
    from conductor_build.probe_journal import Asked, identity
    from support.rawpeer import local_worker as peer

    one = peer(TcpEndpoint("127.0.0.1", 9), "one")
    rows = [Asked(one.id, identity(one), str(n), "math", n / 2, None, 9, 10, 0.5) for n in (0, 2)]
    told = {"measured_at": "2026-11-30T12:00:00+00:00", "questions": 2}
    path = tmp_path / "cards.json"
    path.write_bytes(orjson.dumps(probe_cards.document([one], rows, told)))
    assert {"one": read_cards(path).workers["one"].card} == probe_cards.read_cards(path)


# -- the command ----------------------------------------------------------------------------------


def ran(*arguments: str) -> Any:
    return CliRunner().invoke(models, ["cards", *arguments], catch_exceptions=True)


def test_the_table_shows_shares_with_intervals_and_the_age(tmp_path: Path) -> None:
    directory = site(tmp_path, document(a=measured()), bare("a"), local_worker("b", port=8))
    said = ran("--config", str(directory)).output
    for shown in ("8 of 10", "0.80", "0.49 to 0.94", "70.5", "0.25", "1.5, 4.25", "0.5, 2",
                  "2 worker:timeout", "measured 3 days ago, 60 questions"):  # fmt: skip
        assert shown in said
    assert "b " in said
    assert "not measured" in said


def test_json_has_all_of_it(tmp_path: Path) -> None:
    directory = site(tmp_path, document(a=measured()), bare("a"), local_worker("b", port=8))
    found = json.loads(ran("--config", str(directory), "--json").output)
    assert found["workers"]["a"]["domains"] == {"math": MATH}
    assert found["workers"]["a"]["latency_s"] == {"median": 1.5, "p95": 4.25}
    assert found["not_measured"] == ["b"]
    assert found["age_s"] == pytest.approx(3 * 86_400, abs=60)


def test_a_file_can_be_looked_at_by_itself(tmp_path: Path) -> None:
    (tmp_path / "c.json").write_bytes(orjson.dumps(document(x=measured(card=None, domains={}))))
    assert "no answer could be scored" in ran(str(tmp_path / "c.json")).output


def test_a_site_that_names_no_cards_is_told_what_to_do(tmp_path: Path) -> None:
    failed = ran("--config", str(write_site(tmp_path)))
    assert isinstance(failed.exception, StartError)
    assert "conductor-build probe" in str(failed.exception)
