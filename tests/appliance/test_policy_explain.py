"""What an explanation says: the decision as it is made, and the one fact that would turn it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from conductor.core import Finding, Likelihood, Scan
from conductor.policy.decide import decide
from conductor.policy.document import Policy, read_policy
from conductor.policy.explain import Explained, explain, explanation
from conductor.policy.flows import labels, probe
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import document
from support.appliedpolicies import FRONTIER_FOR_SECRETS, policy_bytes

EU = {**FRONTIER_FOR_SECRETS, "region": "eu", "dpa": True}
PLAIN = {"level": "internal", "compartments": []}
CHANGES: dict[str, Any] = {
    "destinations": {"frontier": {"clearance": PLAIN}, "eu": {**EU, "clearance": PLAIN}},
    "guardrails": [{"id": "not-to-us", "deny": {"to": {"kind": "remote", "region": "us"}}}],
    "rules": [{"id": "eu-work", "allow": {"to": {"kind": "remote", "region": "eu"}}}],
    "declassifiers": [{"id": "redact-v1", "kind": "redact", "types": ["email"],
                       "removes": {"compartments": ["pii"]}}],
    "tests": [],
}  # fmt: skip


def read(**changes: Any) -> Policy:
    faults = Faults()
    policy = read_policy(document(policy_bytes(**{**CHANGES, **changes}), "/etc/x/p.yaml", faults))
    faults.raise_any()
    assert policy is not None
    return policy


POLICY = read()


def to(destination: str, label: str, policy: Policy = POLICY) -> Explained:
    explained = explain(policy, policy.lattice.parse(label))
    return next(one for one in explained if one.destination.id == destination)


def changes_of(one: Explained) -> list[tuple[str, str]]:
    return [(change.what, change.change) for change in one.would_allow_if]


def test_the_decision_is_the_one_that_is_made() -> None:
    for label in labels(POLICY.lattice):
        for one in explain(POLICY, label):
            assert one.verdict == decide(POLICY, label, probe(one.destination))
            assert bool(one.would_allow_if) is False or not one.verdict.allow


def test_what_goes_needs_no_change() -> None:
    assert changes_of(to("eu", "internal")) == []


@pytest.mark.parametrize(
    ("destination", "label", "first"),
    [
        ("eu", "internal+pii", ("declassifier", "redact-v1 made it internal")),
        ("eu", "internal+payment", ("compartment", "it were not payment")),
        ("eu", "restricted", ("level", "its level were internal")),
        ("frontier", "internal", ("fact", "its region were eu")),
    ],
)
def test_the_smallest_change_comes_first(
    destination: str, label: str, first: tuple[str, str]
) -> None:
    assert changes_of(to(destination, label))[0] == first


def test_a_clearance_is_named_where_it_alone_stands_in_the_way() -> None:
    found = changes_of(to("eu", "confidential"))
    assert ("clearance", "it were cleared for confidential") in found
    assert "clearance" not in {what for what, _ in changes_of(to("frontier", "confidential"))}


def test_where_one_change_is_not_enough_two_are_tried() -> None:
    assert changes_of(to("frontier", "internal+pii"))[0] == (
        "declassifier",
        "redact-v1 made it internal and its region were eu",
    )
    assert changes_of(to("eu", "confidential+pii"))[0] == (
        "declassifier",
        "redact-v1 made it confidential and its level were internal",
    )


def test_where_three_facts_must_change_nothing_is_promised() -> None:
    assert changes_of(to("frontier", "confidential+pii")) == []


def test_every_change_that_is_told_is_one_that_would_do() -> None:
    """By the words alone: the level named is then the data's."""
    for one in explain(POLICY, POLICY.lattice.parse("confidential")):
        for what, change in changes_of(one):
            if what == "level" and " and " not in change:
                lower = POLICY.lattice.parse(change.rpartition(" ")[2])
                assert decide(POLICY, lower, probe(one.destination)).allow


def test_a_flag_is_flipped_and_a_missing_fact_supplied() -> None:
    rule = {"id": "dpa", "allow": {"to": {"kind": "remote", "dpa": True}}}
    policy = read(rules=[rule], guardrails=[])
    assert ("fact", "its dpa were true") in changes_of(to("frontier", "internal", policy))


def test_explaining_leaves_the_policy_as_it_was() -> None:
    label = POLICY.lattice.parse("internal")
    eu = POLICY.destinations["eu"]
    before = decide(POLICY, label, probe(eu))
    explain(POLICY, label)
    assert POLICY.masks.of_destination(eu).destination is eu
    assert decide(POLICY, label, probe(eu)) == before


def test_evidence_is_kinds_and_counts_and_positions_hold_no_path() -> None:
    scan = Scan((Finding("email", 2, "base64", Likelihood.LIKELY),), 99, ("image",))
    lattice = POLICY.lattice
    facts = explanation(POLICY, scan, lattice.parse("internal"), lattice.parse("internal+pii"))
    assert (facts["label_before"], facts["label_after"]) == ("internal", "internal+pii")
    assert facts["because"] == [
        {"detector": "email", "count": 2, "likelihood": "likely", "view": "base64"}
    ]
    assert facts["unscanned"] == ["image"]
    assert [one["destination"] for one in facts["destinations"]] == ["box", "frontier", "eu"]
    assert b"/etc" not in orjson.dumps(facts)


def test_shadow_rules_are_told_beside_the_decision() -> None:
    shadow = {"id": "soon", "mode": "shadow", "allow": {"to": {"kind": "remote"}}}
    facts = to("frontier", "internal", read(rules=[shadow], guardrails=[])).facts()
    assert (facts["decision"], [item["rule"] for item in facts["shadow"]]) == ("deny", ["soon"])
