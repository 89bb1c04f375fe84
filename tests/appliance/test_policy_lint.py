"""What linting a policy finds, and where."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conductor.core import SecretRef
from conductor.labels import Label
from conductor.policy.decide import decide
from conductor.policy.lint import lint
from conductor.policy.reach import MAX_LABELS
from conductor.settings import Api, Appliance, Key, Paths
from support.configs import policy_tree
from support.policies import read, worker_at

TODAY = datetime.date(2026, 6, 1)
CUT = {"id": "cut", "kind": "redact", "types": ["email"], "removes": {"compartments": ["pii"]}}


@dataclass(frozen=True)
class Beside:
    """A site with some keys."""

    appliance: Appliance


def beside(**declaring: bool) -> Beside:
    here = Path("/nowhere")
    keys = tuple(
        Key(name, SecretRef("env", "X"), None, declare_labels=may)
        for name, may in declaring.items()
    )
    return Beside(Appliance("connected", Paths(here, here, here, here, here), Api(), keys))


def codes(changes: dict[str, Any], site: Beside | None = None) -> list[tuple[str, str]]:
    """Codes found, with the id of the rule or declassifier at the place; `untested` left out."""
    tree = {**policy_tree(), "guardrails": [], "rules": [], **changes}
    lines = json.dumps(tree, indent=1)
    policy = read(lines)
    found = []
    for item in lint(policy, site, TODAY):
        _, line, column = item.place
        rest = "".join(lines.splitlines(keepends=True)[line - 1 :])[column - 1 :]
        found.append((item.code, json.JSONDecoder().raw_decode(rest)[0]["id"]))
    return [pair for pair in found if pair[0] != "untested"]


def deny(name: str, to: dict[str, Any], when: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"id": name, "deny": {"to": to, "if": when or {}}}


def allow(name: str, to: dict[str, Any], when: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": name, "allow": {"to": to, "if": when}, **more}


REMOTE = {"kind": "remote"}
PII, SECRET = {"compartments_any": ["pii"]}, {"compartments_any": ["secret"]}
LOW = {"level_at_most": "internal"}
REDACT = {"obligations": [{"redact": {"by": "cut"}}]}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"rules": [deny("a", {"vendor": "simulated", "region": "us"}, PII)]}, []),
        (
            {"rules": [deny("a", REMOTE, {"not": {"any": [PII, {"not": PII}]}})]},
            [("never-applies", "a")],
        ),
        (
            {"rules": [deny("a", {"kind": "remote", "not": {"region": "us"}})]},
            [("never-applies", "a")],
        ),
        ({"rules": [allow("a", {"kind": "local", "region": "us"}, LOW)]}, [("never-applies", "a")]),
        ({"rules": [allow("a", REMOTE, SECRET)]}, [("no-clearance", "a")]),
        (
            {"rules": [allow("a", REMOTE, {"level_at_least": "confidential"})]},
            [("no-clearance", "a")],
        ),
        # A deny that another makes needless, wherever it stands: the later of equals is named.
        ({"rules": [deny("a", REMOTE, PII), deny("b", REMOTE, PII)]}, [("covered", "b")]),
        ({"rules": [deny("a", REMOTE, PII), deny("b", REMOTE)]}, [("covered", "a")]),
        (
            {"guardrails": [deny("g", REMOTE)], "rules": [deny("a", REMOTE, PII)]},
            [("covered", "a")],
        ),
        ({"rules": [deny("a", REMOTE, PII), deny("b", REMOTE, SECRET)]}, []),
        # An allow that a deny stops, that a broader one makes needless, or that stays at home.
        ({"rules": [deny("d", REMOTE), allow("a", REMOTE, LOW)]}, [("covered", "a")]),
        (
            {"rules": [allow("a", REMOTE, LOW), allow("b", REMOTE, {"level_at_most": "public"})]},
            [("covered", "b")],
        ),
        ({"rules": [allow("a", {"kind": "local"}, LOW)]}, [("covered", "a")]),
        # With obligations an allow is not needless beside a broader one, and its data is judged
        # as it will be.
        (
            {
                "declassifiers": [CUT],
                "rules": [allow("a", REMOTE, LOW), allow("b", REMOTE, PII, **REDACT)],
            },
            [],
        ),
        (
            {
                "declassifiers": [CUT],
                "rules": [allow("b", REMOTE, PII, **REDACT), deny("d", REMOTE, PII)],
            },
            [],
        ),
        (
            {
                "declassifiers": [CUT],
                "rules": [allow("b", REMOTE, PII, **REDACT), deny("d", REMOTE, LOW)],
            },
            [("covered", "b")],
        ),
        (
            {"declassifiers": [CUT], "rules": [allow("b", {}, PII, **REDACT)]},
            [("obliges-local", "b")],
        ),
        ({"declassifiers": [CUT]}, [("unused", "cut")]),
        (
            {"rules": [{**deny("a", REMOTE), "mode": "shadow", "since": "2026-03-02"}]},
            [("old-shadow", "a")],
        ),
        ({"rules": [{**deny("a", REMOTE), "mode": "shadow", "since": "2026-03-03"}]}, []),
        # What is not in force covers nothing and is covered by nothing.
        ({"rules": [{**deny("a", REMOTE), "mode": "shadow"}, deny("b", REMOTE, PII)]}, []),
        ({"rules": [{**deny("a", REMOTE), "mode": "off"}, deny("b", REMOTE, PII)]}, []),
    ],
)
def test_what_is_suspicious_is_named_at_its_place(
    changes: dict[str, Any], found: list[tuple[str, str]]
) -> None:
    assert codes(changes) == found


def test_a_needless_deny_can_be_taken_out_without_changing_a_decision() -> None:
    rules = [
        deny("a", REMOTE, PII),
        deny("b", {"vendor": "simulated"}, PII),
        deny("c", REMOTE, LOW),
    ]
    needless = {name for code, name in codes({"rules": rules}) if code == "covered"}
    assert needless == {"a"}  # `b` speaks of the box too, which states no vendor
    whole = read({"rules": rules})
    rest = read({"rules": [rule for rule in rules if rule["id"] not in needless]})
    for level in range(4):
        for compartments in (frozenset[str](), frozenset({"pii"})):
            for to in whole.destinations.values():
                data = Label(level, compartments)
                one, other = (decide(policy, data, worker_at(to)) for policy in (whole, rest))
                assert one.allow == other.allow


def test_a_rule_without_a_test_is_an_error() -> None:
    case = {
        "name": "t",
        "given": {"label": "internal+secret", "to": "frontier"},
        "expect": {"decision": "deny", "rule": "no-secret-remote"},
    }
    policy = read({"tests": [case]})
    found = lint(policy, None, TODAY)
    assert [(item.code, item.severity) for item in found] == [("untested", "error")]
    assert "rule: ordinary-work-may-go-out" in found[0].message
    assert str(found[0]).startswith(policy.rules[0].position + ": untested: ")


PSEUDONYMS = {**CUT, "id": "names", "kind": "pseudonymise"}
BY_HAND = {
    "id": "by-hand",
    "kind": "approved",
    "approvers": ["anna"],
    "removes": {"compartments": ["pii"]},
}
ANNA = {"id": "anna", "public_key": "11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="}
APPROVE = {"approve": {"by": "by-hand"}}


@pytest.mark.parametrize(
    ("first", "mode", "found"),
    [
        ({"pseudonymise": {"by": "names"}}, "enforce", True),
        ({"pseudonymise": {"by": "names"}}, "shadow", True),
        ({"pseudonymise": {"by": "names"}}, "off", False),
        ({"redact": {"by": "cut"}}, "enforce", False),
        ("no_tools", "enforce", False),
    ],
)
def test_what_differs_in_each_request_can_never_be_approved(
    first: Any, mode: str, found: bool
) -> None:
    since = {"since": "2026-05-01"} if mode == "shadow" else {}
    rule = allow("a", REMOTE, PII, obligations=[first, APPROVE], mode=mode, **since)
    policy = read(
        {"rules": [rule], "declassifiers": [CUT, PSEUDONYMS, BY_HAND], "approvers": [ANNA]}
    )
    told = [item for item in lint(policy, None, TODAY) if item.code == "never-approved"]
    assert [item.severity for item in told] == ["error"] * found
    assert all(item.position == policy.rules[0].position for item in told)


def test_declared_trust_needs_a_caller_that_may_declare() -> None:
    believed = {
        "id": "c",
        "when": {"declared": {"from": ["header"], "caller": "dms"}},
        "raise": {"from_declared": True},
    }
    changes = {"classify": [believed]}
    assert codes(changes, beside(dms=True)) == []
    assert codes(changes, beside(dms=False)) == [("nobody-declares", "c")]
    assert codes(changes, beside(other=True)) == [("nobody-declares", "c")]
    assert codes(changes) == []


def test_where_too_many_compartments_are_named_that_is_said() -> None:
    names = [f"c{number}" for number in range(MAX_LABELS.bit_length())]
    levels = policy_tree()["labels"]["levels"]
    changes = {
        "labels": {
            "levels": levels,
            "compartments": ["pii", "secret", "payment", "unscanned", *names],
        },
        "rules": [deny("a", REMOTE, {"compartments_any": names})],
    }
    assert codes(changes) == [("too-many-labels", "a")]


@pytest.mark.parametrize(
    ("facts", "found"), [({"zero_retention": True}, []), ({}, ["retention-unsaid"])]
)
def test_zero_retention_is_asked_only_of_those_who_state_it(
    facts: dict[str, Any], found: list[str]
) -> None:
    tree = policy_tree()
    tree["destinations"]["frontier"].update(facts)
    rule = allow("out", {"kind": "remote"}, {"level_at_most": "internal"})
    changes = {
        "destinations": tree["destinations"],
        "rules": [{**rule, "obligations": ["zero_retention"]}],
    }
    assert [code for code, name in codes(changes) if name == "out"] == found
