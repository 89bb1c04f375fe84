"""What policy decides without obligations: the floor, three values, tiers, every condition."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from conductor.core import Worker
from conductor.labels import Clearance, Label
from conductor.policy import conditions
from conductor.policy.conditions import Fact
from conductor.policy.decide import decide, decide_all
from support.configs import policy_tree
from support.policies import read, worker_at

POLICY = read({})
LATTICE = POLICY.lattice
BOX = worker_at(POLICY.destinations["box"])
FRONTIER = worker_at(POLICY.destinations["frontier"])


def label(text: str) -> Label:
    return LATTICE.parse(text)


@pytest.mark.parametrize(
    ("data", "worker", "allow", "rule"),
    [
        ("public", FRONTIER, True, "ordinary-work-may-go-out"),
        ("internal", FRONTIER, True, "ordinary-work-may-go-out"),
        ("confidential", FRONTIER, False, "floor.clearance"),
        ("internal+pii", FRONTIER, False, "floor.clearance"),
        ("public+unscanned", FRONTIER, False, "floor.clearance"),
        ("restricted+payment+pii+secret+unscanned", BOX, True, "baseline.local"),
    ],
)
def test_the_small_policy_decides_by_the_book(
    data: str, worker: Worker, allow: bool, rule: str
) -> None:
    verdict = decide(POLICY, label(data), worker)
    assert (verdict.allow, verdict.rule, verdict.error) == (allow, rule, False)
    assert decide_all(POLICY, label(data), [worker]) == {worker.id: verdict}


def test_a_verdict_says_where_its_rule_stands() -> None:
    text = json.dumps(policy_tree())
    column = text.index('{"id": "ordinary-work-may-go-out"') + 1
    assert decide(POLICY, label("public"), FRONTIER).position == f"p.yaml:1:{column}"
    assert decide(POLICY, label("restricted"), FRONTIER).position.startswith("p.yaml:1:")
    assert decide(POLICY, label("public"), BOX).position == "built-in"


def test_a_worker_may_be_cleared_for_less_than_its_destination_but_never_for_more() -> None:
    narrow = worker_at(POLICY.destinations["box"], Clearance(1))
    assert decide(POLICY, label("confidential"), narrow).rule == "floor.clearance"
    wide = worker_at(POLICY.destinations["frontier"], Clearance(3, LATTICE.compartments))
    assert decide(POLICY, label("confidential"), wide).rule == "floor.clearance"


@pytest.mark.parametrize(
    "strange", [Label(4), Label(-1), Label(1, frozenset({"health"})), Label(99, frozenset({""}))]
)
def test_a_label_that_is_none_of_this_site_goes_nowhere(strange: Label) -> None:
    wide = worker_at(POLICY.destinations["box"], Clearance(99, LATTICE.compartments | {"health"}))
    for worker in (BOX, FRONTIER, wide):
        verdict = decide(POLICY, strange, worker)
        assert (verdict.allow, verdict.rule, verdict.error) == (False, "floor.label", True)


def test_unscanned_data_stays_even_if_a_remote_destination_claims_the_clearance() -> None:
    cleared = dataclasses.replace(
        POLICY.destinations["frontier"], clearance=Clearance(3, LATTICE.compartments)
    )
    verdict = decide(POLICY, label("public+unscanned"), worker_at(cleared))
    assert (verdict.allow, verdict.rule) == (False, "floor.unscanned")


def test_without_rules_local_is_allowed_and_remote_is_denied() -> None:
    policy = read({"rules": None, "guardrails": None})
    assert decide(policy, label("public"), BOX).rule == "baseline.local"
    verdict = decide(policy, label("public"), FRONTIER)
    assert (verdict.allow, verdict.rule) == (False, "baseline.remote")


def test_a_kind_that_is_neither_local_nor_remote_inherits_no_trust() -> None:
    kind: Any = "elsewhere"
    odd = dataclasses.replace(POLICY.destinations["box"], kind=kind)
    assert not decide(read({"rules": None}), label("public"), worker_at(odd)).allow


def test_a_deny_beats_every_allow_wherever_it_stands() -> None:
    allow = {"id": "yes", "allow": {"to": {"kind": "remote"}}}
    deny = {
        "id": "no",
        "deny": {"to": {"region": ["us", "eu"]}, "if": {"level_at_least": "internal"}},
    }
    for rules in ([allow, deny], [deny, allow]):
        policy = read({"rules": rules})
        assert decide(policy, label("internal"), FRONTIER).rule == "no"
        assert decide(policy, label("public"), FRONTIER).rule == "yes"


def test_a_guardrail_beats_a_rule_and_the_first_deny_is_named() -> None:
    guardrails = [
        {"id": "first", "deny": {"to": {"vendor": "simulated"}}},
        {"id": "second", "deny": {"to": {"vendor": "simulated"}}},
    ]
    policy = read({"guardrails": guardrails})
    assert decide(policy, label("public"), FRONTIER).rule == "first"


def test_a_missing_fact_makes_a_deny_apply_and_an_allow_not() -> None:
    """`box` states no region and `frontier` no dpa: neither is taken for a no."""
    deny = read({"rules": [{"id": "no-us", "deny": {"to": {"region": "us"}}}]})
    verdict = decide(deny, label("public"), BOX)
    assert (verdict.allow, verdict.rule, verdict.error) == (False, "no-us", True)
    other = {"kind": "remote", "dpa": True, "clearance": {"level": "public", "compartments": []}}
    allow = read(
        {
            "destinations": {"other": other},
            "rules": [{"id": "dpa-only", "allow": {"to": {"not": {"dpa": False}}}}],
        }
    )
    verdict = decide(allow, label("public"), FRONTIER)
    assert (verdict.allow, verdict.rule, verdict.error) == (False, "baseline.remote", True)
    assert decide(allow, label("public"), worker_at(allow.destinations["other"])).rule == "dpa-only"


def test_a_deny_that_asks_for_the_kind_first_leaves_local_workers_alone() -> None:
    policy = read({"rules": [{"id": "no-us", "deny": {"to": {"kind": "remote", "region": "us"}}}]})
    assert decide(policy, label("public"), BOX).rule == "baseline.local"


HAS_PII = {"compartments_any": ["pii"]}


@pytest.mark.parametrize(
    ("asked", "data", "applies"),
    [
        ({"level_at_most": "internal"}, "internal", True),
        ({"level_at_most": "internal"}, "confidential", False),
        ({"level_at_least": "internal"}, "public", False),
        ({"level_at_least": "internal", "level_at_most": "confidential"}, "confidential", True),
        ({"compartments_any": ["pii", "secret"]}, "public+pii", True),
        ({"compartments_any": ["pii", "secret"]}, "public+payment", False),
        ({"compartments_all": ["pii", "secret"]}, "public+pii", False),
        ({"compartments_all": ["pii", "secret"]}, "public+pii+secret", True),
        ({"compartments_none": ["pii", "secret"]}, "public+payment", True),
        ({"compartments_none": ["pii", "secret"]}, "public+pii", False),
        ({"not": HAS_PII}, "public", True),
        (
            {"any": [{"level_at_least": "restricted"}, {"compartments_any": ["pii"]}]},
            "public+pii",
            True,
        ),
        (
            {"all": [{"level_at_most": "public"}, {"compartments_any": ["pii"]}]},
            "internal+pii",
            False,
        ),
        ({"any": [{"not": {"any": [{"level_at_most": "public"}]}}]}, "internal", True),
    ],
)
def test_every_condition_on_labels_means_what_it_says(
    asked: dict[str, Any], data: str, applies: bool
) -> None:
    policy = read({"guardrails": None, "rules": [{"id": "r", "deny": {"if": asked}}]})
    assert decide(policy, label(data), BOX).allow is not applies


@pytest.mark.parametrize(
    ("asked", "applies"),
    [
        ({"id": "frontier"}, True),
        ({"id": ["box"]}, False),
        ({"kind": "remote", "vendor": "simulated"}, True),
        ({"vendor": "acme"}, False),
        ({"region": ["eu", "us"]}, True),
        ({"not": {"region": "eu"}}, True),
        ({"any": [{"region": "eu"}, {"vendor": "simulated"}]}, True),
        ({"all": [{"region": "us"}, {"vendor": "acme"}]}, False),
    ],
)
def test_every_condition_on_destinations_means_what_it_says(
    asked: dict[str, Any], applies: bool
) -> None:
    policy = read({"guardrails": None, "rules": [{"id": "r", "allow": {"to": asked}}]})
    assert decide(policy, label("public"), FRONTIER).allow is applies


def test_a_fact_of_another_type_is_unknown() -> None:
    destination = dataclasses.replace(POLICY.destinations["frontier"], facts={"dpa": "true"})
    assert Fact("dpa", frozenset({True})).holds(destination) is None
    assert Fact("dpa", frozenset({"true"})).holds(destination) is True
    assert Fact("id", frozenset({True})).holds(destination) is None


@pytest.mark.parametrize("a", [True, False, None])
@pytest.mark.parametrize("b", [True, False, None])
def test_the_three_values_follow_kleene(a: bool | None, b: bool | None) -> None:
    both, either = conditions.conjunction((a, b)), conditions.disjunction((a, b))
    assert both is (False if False in (a, b) else None if None in (a, b) else True)
    assert either is (True if True in (a, b) else None if None in (a, b) else False)
    assert conditions.negation(both) is conditions.disjunction(map(conditions.negation, (a, b)))
