"""What policy decides: the floor, three values, tiers; and what its file may say."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.core import Card, Destination, Finding, Scan, TcpEndpoint, Worker
from conductor.detect.scan import DETECTORS
from conductor.errors import ConfigError
from conductor.labels import Clearance, Label
from conductor.policy import conditions
from conductor.policy.conditions import All, Compartments, Condition, Fact, Level, Not
from conductor.policy.decide import classify, decide, decide_all, rule_ids
from conductor.policy.document import Policy, read_policy
from conductor.policy.rules import Rule
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import Document, parse
from support.configs import overridden, policy_tree


def read(changes: dict[str, Any] | str) -> Policy:
    """A policy from the small site's file with changes, or from the text of a whole file."""
    text = changes if isinstance(changes, str) else json.dumps(overridden(policy_tree(), changes))
    faults = Faults()
    policy = read_policy(Document("p.yaml", "0" * 64, parse(text.encode(), "p.yaml", faults)))
    faults.raise_any()
    assert policy is not None
    return policy


def faults_of(changes: dict[str, Any] | str) -> list[tuple[str, str]]:
    """Codes and messages of what is wrong."""
    try:
        read(changes)
    except ConfigError as error:
        return [(fault.code, fault.message) for fault in error.faults]
    return []


def worker_at(destination: Destination, clearance: Clearance | None = None) -> Worker:
    return Worker(
        id=f"at-{destination.id}",
        model="m",
        destination=destination,
        clearance=clearance or destination.clearance,
        endpoint=TcpEndpoint("127.0.0.1", 1),
        card=Card({"general": 1.0}, 1.0, "declared"),
    )


POLICY = read({})
LATTICE = POLICY.lattice
BOX = worker_at(POLICY.destinations["box"])
FRONTIER = worker_at(POLICY.destinations["frontier"])


def label(text: str) -> Label:
    return LATTICE.parse(text)


# -- deciding ---------------------------------------------------------------------------------


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
    assert Fact("dpa", frozenset({True})).holds(Label(0), destination) is None
    assert Fact("dpa", frozenset({"true"})).holds(Label(0), destination) is True
    assert Fact("id", frozenset({True})).holds(Label(0), destination) is None


@pytest.mark.parametrize("a", [True, False, None])
@pytest.mark.parametrize("b", [True, False, None])
def test_the_three_values_follow_kleene(a: bool | None, b: bool | None) -> None:
    both, either = conditions.conjunction((a, b)), conditions.disjunction((a, b))
    assert both is (False if False in (a, b) else None if None in (a, b) else True)
    assert either is (True if True in (a, b) else None if None in (a, b) else False)
    assert conditions.negation(both) is conditions.disjunction(map(conditions.negation, (a, b)))


# -- properties over random policies ----------------------------------------------------------

FACTS: dict[str, list[Any]] = {
    "vendor": ["acme", "other"],
    "region": ["eu", "us"],
    "dpa": [True, False],
}
label_sets = st.frozensets(st.sampled_from(sorted(LATTICE.compartments)), max_size=3)
labels = st.builds(Label, st.integers(0, 3), label_sets)
clearances = st.builds(Clearance, st.integers(0, 3), label_sets)
facts = st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in FACTS.items()})
asked_facts: dict[str, list[Any]] = {"kind": ["local", "remote"], **FACTS}
leaves: st.SearchStrategy[Condition] = st.one_of(
    *(
        st.builds(Fact, st.just(name), st.frozensets(st.sampled_from(values), min_size=1))
        for name, values in asked_facts.items()
    ),
    st.builds(Level, st.integers(0, 3), st.integers(0, 3)),
    st.builds(Compartments, st.sampled_from(["any", "all", "none"]), label_sets),
)
trees: st.SearchStrategy[Condition] = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(All, st.lists(inner, max_size=3).map(tuple)),
        st.builds(conditions.Any, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


def rules_of(effect: str, name: str) -> st.SearchStrategy[Rule]:
    return st.builds(Rule, st.just(name), st.just(effect), trees, trees, st.just("p.yaml:1:1"))


any_rules = st.lists(rules_of("allow", "a") | rules_of("deny", "d"), max_size=4).map(tuple)
guardrails = st.lists(rules_of("deny", "g"), max_size=2).map(tuple)
policies = st.builds(
    lambda own, upper: dataclasses.replace(POLICY, rules=own, guardrails=upper),
    any_rules,
    guardrails,
)
destinations = st.builds(
    Destination, st.just("d"), st.sampled_from(["local", "remote"]), clearances, facts, st.just("p")
)


@given(policies, labels, destinations, clearances)
def test_no_policy_gets_past_the_floor(
    policy: Policy, data: Label, destination: Destination, own: Clearance
) -> None:
    if decide(policy, data, worker_at(destination, own)).allow:
        assert data.flows_to(own)
        assert data.flows_to(destination.clearance)
        assert destination.kind == "local" or "unscanned" not in data.compartments


@settings(max_examples=300)
@given(policies, labels, destinations, st.sampled_from(sorted(FACTS)))
def test_taking_a_fact_away_never_turns_a_deny_into_an_allow(
    policy: Policy, data: Label, destination: Destination, gone: str
) -> None:
    fewer = {key: value for key, value in destination.facts.items() if key != gone}
    poorer = dataclasses.replace(destination, facts=fewer)
    if decide(policy, data, worker_at(poorer)).allow:
        assert decide(policy, data, worker_at(destination)).allow


@given(policies, labels, destinations, rules_of("deny", "more"), st.booleans())
def test_adding_a_deny_never_allows_anything(
    policy: Policy, data: Label, destination: Destination, deny: Rule, as_guardrail: bool
) -> None:
    place = "guardrails" if as_guardrail else "rules"
    changes: dict[str, Any] = {place: (*getattr(policy, place), deny)}
    if decide(dataclasses.replace(policy, **changes), data, worker_at(destination)).allow:
        assert decide(policy, data, worker_at(destination)).allow


@given(policies, labels, destinations)
def test_every_rule_that_a_verdict_names_is_among_the_rule_ids(
    policy: Policy, data: Label, destination: Destination
) -> None:
    assert decide(policy, data, worker_at(destination)).rule in rule_ids(policy)


@given(policies, labels, destinations)
def test_the_order_of_rules_decides_nothing(
    policy: Policy, data: Label, destination: Destination
) -> None:
    turned = dataclasses.replace(
        policy, rules=policy.rules[::-1], guardrails=policy.guardrails[::-1]
    )
    worker = worker_at(destination)
    assert decide(policy, data, worker).allow == decide(turned, data, worker).allow


# -- classifying ------------------------------------------------------------------------------


def scan(*found: tuple[str, int], unscanned: tuple[str, ...] = ()) -> Scan:
    return Scan(tuple(Finding(name, count) for name, count in found), 10, unscanned)


@pytest.mark.parametrize(
    ("base", "found", "expected"),
    [
        ("public", scan(), "public"),
        ("public", scan(("email", 1)), "public+pii"),
        ("public", scan(("email", 0)), "public+pii"),
        ("restricted", scan(("iban", 1)), "restricted+payment+pii"),
        ("internal", scan(("iban", 1), ("email", 2)), "confidential+payment+pii"),
        ("internal", scan(("secret.aws", 1)), "restricted+secret"),
        ("public", scan(unscanned=("an image",)), "public+unscanned"),
        ("public", scan(("not-a-detector", 1)), "restricted+payment+pii+secret+unscanned"),
    ],
)
def test_findings_raise_a_label(base: str, found: Scan, expected: str) -> None:
    assert LATTICE.show(classify(POLICY, found, label(base))) == expected


def test_a_classifier_waits_for_its_minimum_over_all_views() -> None:
    many = {
        "id": "many",
        "when": {"detector": "email", "min_count": 3},
        "raise": {"level": "restricted"},
    }
    policy = read({"classify": [many]})
    assert classify(policy, scan(("email", 2)), Label(1)) == Label(1)
    assert classify(policy, scan(("email", 2), ("email", 1)), Label(1)) == Label(3)


def test_a_detector_that_nobody_classified_raises_to_the_top() -> None:
    policy = read({"classify": []})
    for detector in DETECTORS:
        assert classify(policy, scan((detector, 1)), Label(0)) == LATTICE.top


@given(
    labels,
    st.lists(
        st.tuples(st.sampled_from([*sorted(DETECTORS), "other"]), st.integers(0, 5)), max_size=4
    ),
    st.booleans(),
)
def test_classifying_never_lowers_and_more_findings_never_lower(
    base: Label, found: list[tuple[str, int]], torn: bool
) -> None:
    unscanned = ("deep",) if torn else ()
    raised = classify(POLICY, scan(*found, unscanned=unscanned), base)
    assert base.join(raised) == raised
    fewer = classify(POLICY, scan(*found[1:]), base)
    assert fewer.join(raised) == raised


# -- the file ---------------------------------------------------------------------------------


def rule(body: dict[str, Any], effect: str = "deny") -> dict[str, Any]:
    return {"rules": [{"id": "r", effect: body}]}


REMOTE = {"kind": "remote", "clearance": {"level": "public", "compartments": []}}


def cleared(level: str, compartments: Any) -> dict[str, Any]:
    """A remote destination with this clearance."""
    clearance = {"level": level, "compartments": compartments}
    return {"destinations": {"x": {"kind": "remote", "clearance": clearance}}}


def classifier(raised: dict[str, Any], **when: Any) -> dict[str, Any]:
    return {"classify": [{"id": "c", "when": when, "raise": raised}]}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"apiVersion": "conductor/v2"}, "bad-value", "conductor/v1"),
        ({"kind": "RoutingPolcy"}, "bad-value", "did you mean 'RoutingPolicy'"),
        ({"revision": 0}, "bad-value", "from 1"),
        ({"revision": None}, "missing-key", "'revision'"),
        ({"rulez": []}, "unknown-key", "did you mean 'rules'"),
        ({"tests": []}, "unknown-key", "known"),
        ({"labels": {"compartments": ["pii", "secret", "payment"]}}, "missing-name", "unscanned"),
        ({"default_label": "public"}, "lowest-default", "lowest"),
        ({"default_label": "internl"}, "unknown-label", "did you mean 'internal'"),
        ({"default_label": "internal+pi"}, "unknown-label", "did you mean 'pii'"),
        ({"default_label": None}, "missing-key", "'default_label'"),
        ({"destinations": {"box": {"kind": "lokal"}}}, "bad-value", "did you mean 'local'"),
        ({"destinations": {"box": {"clearance": None}}}, "missing-key", "'clearance'"),
        (cleared("pulic", []), "unknown-level", "did you mean 'public'"),
        (cleared("public", ["pi"]), "unknown-compartment", "did you mean 'pii'"),
        (cleared("public", "al"), "bad-value", "did you mean 'all'"),
        (cleared("public", "all"), "unscanned-remote", "no remote destination"),
        (cleared("public", ["unscanned"]), "unscanned-remote", "no remote destination"),
        ({"destinations": {"X y": REMOTE}}, "bad-name", "lower case"),
        ({"destinations": {"x": {**REMOTE, "Region": "us"}}}, "bad-name", "lower case"),
        ({"destinations": {"x": {**REMOTE, "not": "us"}}}, "bad-name", "lower case"),
        ({"destinations": {"x": {**REMOTE, "region": ["us"]}}}, "wrong-kind", "not a list"),
        (classifier({"level": "internal"}, detector="ibn"), "bad-value", "did you mean 'iban'"),
        (classifier({}, detector="iban"), "missing-key", "level"),
        (classifier({"level": "internal"}, detector="iban", min_count=0), "bad-value", "from 1"),
        (classifier({"level": "internal"}), "missing-key", "detector"),
        ({"guardrails": [{"id": "g"}]}, "exactly-one", "deny"),
        ({"rules": [{"id": "r"}]}, "exactly-one", "allow, deny"),
        ({"rules": [{"id": "r", "allow": {}, "deny": {}}]}, "exactly-one", "allow, deny"),
        ({"rules": [{"id": "r", "mode": "off", "deny": {}}]}, "unknown-key", "known"),
        ({"rules": [{"id": "R!", "deny": {}}]}, "bad-value", "lower case"),
        ({"rules": [{"id": "no-secret-remote", "deny": {}}]}, "duplicate-id", "line 1"),
        (rule({}, "allow"), "allows-all", "everything"),
        (rule({"to": {}, "if": {}}, "allow"), "allows-all", "everything"),
        (rule({"too": {}}), "unknown-key", "did you mean 'to'"),
        (rule({"to": {"vendr": "x"}}), "unknown-key", "did you mean 'vendor'"),
        (rule({"to": {"dpa": True}}), "unknown-key", "known"),
        (rule({"to": {"vendor": True}}), "wrong-kind", "no destination states"),
        (rule({"to": {"kind": "remot"}}), "unknown-kind", "did you mean 'remote'"),
        (rule({"to": {"id": "fronteer"}}), "unknown-id", "did you mean 'frontier'"),
        (rule({"to": {"any": []}}), "bad-value", "must not be empty"),
        (rule({"to": {"not": {}}}), "bad-value", "at least one"),
        (rule({"to": {"region": {}}}), "wrong-kind", "not a mapping"),
        (rule({"to": {"region": []}}), "bad-value", "must not be empty"),
        (rule({"if": {"level_at_most": "topsecret"}}), "unknown-level", "known"),
        (rule({"if": {"compartments_any": ["secrt"]}}), "unknown-compartment", "'secret'"),
        (rule({"if": {"compartments_any": []}}), "bad-value", "must not be empty"),
        (rule({"if": {"compartment_any": ["pii"]}}), "unknown-key", "'compartments_any'"),
        (rule({"if": {"any": [{"kind": "remote"}]}}), "unknown-key", "known"),
    ],
)
def test_one_mistake_in_a_policy_is_one_fault_that_says_what_to_do(
    changes: dict[str, Any], code: str, words: str
) -> None:
    found = faults_of(changes)
    assert [fault[0] for fault in found] == [code]
    assert words in found[0][1]


def test_a_guardrail_cannot_allow() -> None:
    guardrail = {"id": "g", "deny": {}, "allow": {"to": {"kind": "remote"}}}
    assert [code for code, _ in faults_of({"guardrails": [guardrail]})] == ["unknown-key"]


def test_levels_that_cannot_be_read_are_the_only_fault() -> None:
    assert [code for code, _ in faults_of({"labels": {"levels": []}})] == ["bad-value"]
    assert [code for code, _ in faults_of({"labels": None})] == ["missing-key"]


def test_twin_names_in_the_lattice_are_one_fault() -> None:
    twins = {"levels": ["public", "internal", "public", "restricted", "confidential"]}
    assert [code for code, _ in faults_of({"labels": twins})] == ["duplicate-name"]
    clash = {"compartments": ["internal", "pii", "secret", "payment", "unscanned"]}
    assert [code for code, _ in faults_of({"labels": clash})] == ["duplicate-name"]


def test_a_single_level_may_be_the_default() -> None:
    text = """\
apiVersion: conductor/v1
kind: RoutingPolicy
revision: 1
labels: {levels: [plain], compartments: [unscanned]}
default_label: plain
destinations: {}
"""
    assert read(text).default_label == Label(0)


def test_policy_faults_carry_their_exact_place() -> None:
    text = """\
apiVersion: conductor/v1
kind: RoutingPolicy
revision: 3
labels:
  levels: [low, high]
  compartments: [unscanned, pii]
default_label: low
destinations:
  box: {kind: local, clearance: {level: hihg, compartments: all}}
rules:
  - id: a
    deny: {to: {kind: remote}, if: {compartments_any: [pi]}}
  - id: a
    deny: {to: {regoin: eu}}
"""
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert [f"{f.file}:{f.line}:{f.column} {f.code}" for f in caught.value.faults] == [
        "p.yaml:7:16 lowest-default",
        "p.yaml:9:41 unknown-level",
        "p.yaml:12:56 unknown-compartment",
        "p.yaml:13:9 duplicate-id",
        "p.yaml:14:17 unknown-key",
    ]
