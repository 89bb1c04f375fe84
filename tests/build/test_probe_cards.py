"""From scored answers to cards: shares, intervals, lengths, and the file."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Card, TcpEndpoint
from conductor_build.probe_cards import as_yaml, document, read_cards, wilson
from conductor_build.probe_journal import Asked, ProbeError, identity
from support.rawpeer import local_worker

ONE = local_worker(TcpEndpoint("127.0.0.1", 9), "one")
OTHER = local_worker(TcpEndpoint("127.0.0.1", 9), "other")


def row(key: str, score: float | None = 1.0, worker=ONE, domain: str = "math", **more) -> Asked:
    defaults = {"output_tokens": 10, "seconds": 0.5, "void": None if score is not None else "x"}
    return Asked(worker.id, identity(worker), key, domain, score, **{**defaults, **more})


def card_of(*rows: Asked, worker=ONE, workers=(ONE, OTHER)):
    return document(workers, rows, {})["workers"][worker.id]


@pytest.mark.parametrize(("right", "asked"), [(5, 10), (0, 10), (10, 10), (27, 30), (1, 1)])
def test_an_interval_ends_where_the_share_is_1_96_deviations_off(right, asked):
    # Wilson's bounds solve (p - share)^2 = z^2 p (1 - p) / n: the deviation is the bound's own.
    for bound in wilson(right, asked):
        off = abs(bound - right / asked)
        assert off == pytest.approx(1.959964 * (bound * (1 - bound) / asked) ** 0.5, abs=1e-7)


def test_an_interval_of_few_questions_is_wide():
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=5e-5)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_an_interval_holds_its_share(drawn):
    right, asked = drawn
    low, high = wilson(right, asked)
    assert 0 <= low <= right / asked + 1e-12
    assert right / asked - 1e-12 <= high <= 1


def test_nothing_asked_tells_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


def test_a_card_has_the_share_of_each_domain_and_voids_are_in_none():
    found = card_of(
        row("a", 1.0), row("b", 0.0), row("c", 1.0), row("d", None, void="worker:cut"),
        row("e", 0.5, domain="general", seconds=2.0),
    )  # fmt: skip
    assert found["card"]["skill"] == {"general": 0.5, "math": 0.6667}
    assert found["domains"]["math"]["asked"] == 3
    assert found["void"] == {"worker:cut": 1}
    assert found["card"]["output_tokens_per_s"] == 11.43  # 40 tokens in 3.5 s
    assert found["latency_s"] == {"median": 0.5, "p95": 2.0}


def test_a_worker_that_only_gave_voids_has_no_card():
    found = card_of(row("a", None, void="worker:refused"))
    assert found["card"] is None
    assert found["latency_s"] is None


def test_the_last_answer_to_a_question_counts_and_another_model_s_do_not():
    stale = replace(row("b"), identity="other")
    found = card_of(row("a", None), row("a", 0.0), stale)
    assert found["domains"]["math"]["asked"] == 1
    assert found["void"] == {}


def test_verbosity_compares_lengths_on_common_questions():
    rows = [
        row("a", output_tokens=10), row("b", output_tokens=20), row("alone", output_tokens=999),
        row("a", output_tokens=30, worker=OTHER), row("b", output_tokens=60, worker=OTHER),
    ]  # fmt: skip
    assert card_of(*rows)["card"]["verbosity"] == 0.5
    assert card_of(*rows, worker=OTHER)["card"]["verbosity"] == 1.5
    assert card_of(rows[0])["card"]["verbosity"] == 1.0


def test_a_written_file_is_read_as_cards_for_planners(tmp_path):
    path = tmp_path / "cards.json"
    path.write_bytes(orjson.dumps(document((ONE, OTHER), [row("a"), row("b", 0.0)], {})))
    assert read_cards(path) == {"one": Card({"math": 0.5}, 20.0, "measured", 1.0)}


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{}", '{"version": 1, "workers": {"a": {"card": {}}}}',
        '{"version": 1, "workers": {"a": {"card": {"skill": {"x": 2}, "output_tokens_per_s": 1, '
        '"source": "measured", "verbosity": 1}}}}',
        '{"version": 2, "workers": {}}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_cards_is_refused(tmp_path, text):
    (tmp_path / "cards.json").write_text(text)
    with pytest.raises(ProbeError):
        read_cards(tmp_path / "cards.json")
    with pytest.raises(ProbeError):
        read_cards(tmp_path / "none.json")


def test_the_yaml_can_be_pasted_into_a_worker():
    text = as_yaml(document((ONE,), [row("a"), row("b", 0.0, domain="general")], {}))
    worker = yaml.safe_load(f"  - id: one\n{text}")
    assert worker[0]["card"] == {
        "skill": {"general": 0, "math": 1},
        "output_tokens_per_s": 20,
        "verbosity": 1,
        "source": "measured",
    }
