"""Metrics: what happened is counted, and nothing that a client sends becomes a label."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from conductor.core import Failure, Usage
from conductor.metrics import CONTENT_TYPE, Metrics


def make() -> Metrics:
    return Metrics(
        worker_ids=["tiny", "big/model"],
        model_names=["conductor", "conductor-local"],
        engines=["default", "pocket"],
        levels=["public", "internal"],
        rules=["no-secrets"],
        reasons=["timeout"],
        unscanned=["too-long"],
    )


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, tuple(sorted(labels.items()))]


def done(metrics: Metrics, model: str = "conductor", status: int = 200, **more: object) -> None:
    metrics.request_began()
    facts = {"total_s": 2.0, "own_s": 0.002, **more}
    metrics.request_done(model, status, "completed", **facts)  # type: ignore[arg-type]


def test_a_request_is_counted_timed_and_no_longer_in_flight() -> None:
    metrics = make()
    metrics.request_began()
    assert value(metrics, "conductor_requests_in_flight") == 1
    metrics.request_done(
        "conductor", 200, "completed", total_s=2.0, own_s=0.002, first_byte_s=0.5, output_tokens=16
    )
    assert value(metrics, "conductor_requests_in_flight") == 0
    assert (
        value(
            metrics,
            "conductor_requests_total",
            model="conductor",
            status="200",
            outcome="completed",
        )
        == 1
    )
    for name, expected in {
        "gen_ai_server_request_duration_seconds_sum": 2.0,
        "gen_ai_server_time_to_first_token_seconds_sum": 0.5,
        "gen_ai_server_time_per_output_token_seconds_sum": 0.1,
    }.items():
        assert value(metrics, name, model="conductor") == pytest.approx(expected)
    assert value(metrics, "conductor_own_overhead_seconds_sum") == pytest.approx(0.002)


def test_a_request_without_content_has_no_time_to_first_token() -> None:
    metrics = make()
    done(metrics)
    assert not [name for name, _ in samples(metrics) if "first_token" in name]


def test_workers_are_counted_by_outcome_tokens_and_money() -> None:
    metrics = make()
    metrics.attempt("tiny", "ok", 0.1)
    metrics.attempt("tiny", Failure.CUT, 0.1)
    metrics.spent("big/model", Usage(10, 5), 0.25)
    metrics.worker_state("tiny", open=True, in_flight=3, queued=2)
    assert value(metrics, "conductor_attempts_total", worker="tiny", outcome="ok") == 1
    assert value(metrics, "conductor_attempts_total", worker="tiny", outcome="cut") == 1
    assert value(metrics, "conductor_tokens_total", worker="big/model", direction="input") == 10
    assert value(metrics, "conductor_tokens_total", worker="big/model", direction="output") == 5
    assert value(metrics, "conductor_cost_usd_total", worker="big/model") == 0.25
    assert value(metrics, "conductor_breaker_open", worker="tiny") == 1
    assert value(metrics, "conductor_worker_in_flight", worker="tiny") == 3
    assert value(metrics, "conductor_worker_queued", worker="tiny") == 2


def test_decisions_are_counted() -> None:
    metrics = make()
    metrics.planned("pocket", "planner")
    metrics.planned("default", "serve", "timeout")
    metrics.labelled("internal")
    metrics.blocked("no-secrets")
    metrics.scanned(0.001, ("too-long",))
    metrics.audit_state(healthy=False, commits=7)
    planned = {"engine": "default", "where": "serve", "why": "timeout"}
    assert value(metrics, "conductor_plans_total", **planned) == 1
    assert value(metrics, "conductor_labels_total", level="internal") == 1
    assert value(metrics, "conductor_blocked_total", rule="no-secrets") == 1
    assert value(metrics, "conductor_unscanned_total", why="too-long") == 1
    assert value(metrics, "conductor_audit_healthy") == 0
    assert value(metrics, "conductor_audit_commits") == 7


def test_rounds_looks_and_early_accepts_are_counted() -> None:
    metrics = make()
    metrics.planned("pocket", "planner", look=True)
    metrics.planned("pocket", "planner")
    metrics.rounds(2, "pocket")
    metrics.rounds(3, stood_in=True)
    metrics.rounds(1)
    assert value(metrics, "conductor_looks_total", engine="pocket") == 1
    assert value(metrics, "conductor_early_accepts_total", engine="pocket") == 1
    assert value(metrics, "conductor_stood_in_total") == 1
    assert value(metrics, "conductor_rounds_count") == 3
    assert value(metrics, "conductor_rounds_sum") == 6
    assert value(metrics, "conductor_rounds_bucket", le="2.0") == 2


def test_what_clients_invent_is_counted_as_other_and_grows_nothing() -> None:
    metrics = make()
    done(metrics, "warm-up")
    metrics.labelled("secret?")
    lines = len(samples(metrics))
    for n in range(2000):
        done(metrics, f"/../etc/passwd{n}", 900 + n)
        metrics.labelled(f"level{n}")
    after = samples(metrics)
    assert len(after) <= lines + 2  # the status "other", and when it was first seen
    assert "passwd" not in str(after)
    assert value(metrics, "conductor_labels_total", level="other") == 2001
    by_other = {"model": "other", "status": "other", "outcome": "completed"}
    assert value(metrics, "conductor_requests_total", **by_other) == 2000
    assert len(metrics._requests._children) < 10


def test_label_values_that_would_break_the_text_form_are_escaped() -> None:
    metrics = Metrics(['a"b\\c\nd'], [], [], [])
    metrics.attempt('a"b\\c\nd', "ok", 0.1)
    assert value(metrics, "conductor_attempts_total", worker='a"b\\c\nd', outcome="ok") == 1


def test_gauges_are_asked_for_at_each_rendering() -> None:
    metrics = make()
    commits = iter([1, 2])
    metrics.before_render(lambda: metrics.audit_state(healthy=True, commits=next(commits)))
    assert b"conductor_audit_commits 1.0" in metrics.render()
    assert b"conductor_audit_commits 2.0" in metrics.render()
    assert CONTENT_TYPE.startswith("text/plain")


def test_two_instances_do_not_share_a_registry() -> None:
    first, second = make(), make()
    done(first)
    assert not [key for key in samples(second) if key[0] == "conductor_requests_total"]


def test_the_policy_in_force_and_refusals_are_told() -> None:
    metrics = make()
    metrics.policy_in_force(42)
    metrics.policy_refused()
    assert value(metrics, "conductor_policy_revision") == 42
    assert value(metrics, "conductor_policy_refused_total") == 1
