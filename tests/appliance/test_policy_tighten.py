"""Which changes of a policy loosen it, and which need approvers: the tables say."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from conductor.core import Obligation, Verdict
from conductor.policy.document import Policy, read_policy
from conductor.policy.rulings import Ruling, looser, recorded_rulings, ruling
from conductor.policy.tighten import guarded_changes, loosenings
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import document
from support.appliedpolicies import FRONTIER_FOR_SECRETS, policy_bytes
from support.configs import policy_tree

KEYS = [
    {"id": name, "public_key": base64.b64encode(bytes([n]) * 32).decode()}
    for n, name in enumerate(("anna", "bert", "carl"), 1)
]
REDACT = {
    "id": "redact-v1",
    "kind": "redact",
    "types": ["email", "iban"],
    "removes": {"compartments": ["pii"]},
}
PII_REDACTED = {
    "id": "pii-redacted",
    "allow": {"to": {"kind": "remote"}, "if": {"compartments_any": ["pii"]}},
    "obligations": [{"redact": {"by": "redact-v1"}}],
}
RULES: list[dict[str, Any]] = policy_tree()["rules"]
GUARDRAILS: list[dict[str, Any]] = policy_tree()["guardrails"]
CLASSIFY: list[dict[str, Any]] = [
    entry for entry in policy_tree()["classify"] if entry["when"]["detector"] != "ip"
]
BASE: dict[str, Any] = {
    "approvers": KEYS[:2],
    "activation": {"guardrail_approvals": 2},
    "classify": CLASSIFY,
    "declassifiers": [REDACT],
    "rules": [*RULES, PII_REDACTED],
    "tests": None,
}


def read(**changes: Any) -> Policy:
    faults = Faults()
    policy = read_policy(document(policy_bytes(**{**BASE, **changes}), "p.yaml", faults))
    faults.raise_any()
    assert policy is not None
    return policy


OLD = read()


def with_entry(items: list[dict[str, Any]], name: str, **changes: Any) -> list[dict[str, Any]]:
    """A list with one entry changed; None removes a key."""
    changed = [{**item, **changes} if item["id"] == name else item for item in items]
    return [{key: value for key, value in item.items() if value is not None} for item in changed]


def frontier(**changes: Any) -> dict[str, Any]:
    return {"destinations": {"frontier": {**FRONTIER_FOR_SECRETS, **changes}}}


TIGHTER: dict[str, dict[str, Any]] = {
    "nothing": {},
    "an allow is gone": {"rules": [PII_REDACTED]},
    "an allow is in shadow": {
        "rules": [*with_entry(RULES, RULES[0]["id"], mode="shadow"), PII_REDACTED]
    },
    "a deny is added": {
        "rules": [*BASE["rules"], {"id": "no", "deny": {"to": {"region": "us"}}}],
    },
    "a guardrail is added": {
        "guardrails": [*GUARDRAILS, {"id": "none-abroad", "deny": {"to": {"kind": "remote"}}}]
    },
    "a clearance is narrowed": frontier(clearance={"level": "public", "compartments": []}),
    "a further obligation": {
        "rules": [*RULES, {**PII_REDACTED, "obligations": [{"redact": {"by": "redact-v1"}},
                                                           "no_tools"]}]
    },
    "a classifier raises more": {
        "classify": with_entry(CLASSIFY, "email", **{"raise": {"level": "restricted",
                                                               "compartments": ["pii"]}})
    },
    "a classifier is gone, so that its detector raises to the top": {
        "classify": [item for item in CLASSIFY if item["id"] != "email"]
    },
    "a declassifier is gone": {"declassifiers": [], "rules": []},
    "the default label is higher": {"default_label": "confidential"},
    "the leak budget is smaller": {"leak_budget_bits": 8},
}  # fmt: skip
LOOSER: dict[str, dict[str, Any]] = {
    "an allow is wider": {
        "rules": [*with_entry(RULES, RULES[0]["id"], allow={"to": {"kind": "remote"},
                                                            "if": {"level_at_most": "restricted"}}),
                  PII_REDACTED],
        **frontier(clearance={"level": "restricted", "compartments": ["pii", "secret"]}),
    },
    "a clearance is wider": frontier(
        clearance={"level": "confidential", "compartments": ["pii", "secret", "payment"]}
    ),
    "a guardrail is gone": {"guardrails": []},
    "a guardrail is in shadow": {"guardrails": with_entry(GUARDRAILS, "no-secret-remote",
                                                          mode="shadow")},
    "a rule is gone whose obligation bound another allow": {"rules": RULES},
    "an obligation is gone": {
        "rules": [*RULES, {**PII_REDACTED, "obligations": ["no_tools"]}]
    },
    "an obligation turns into a plain allow": {
        "rules": [*RULES, {k: v for k, v in PII_REDACTED.items() if k != "obligations"}]
    },
    "a new destination": {
        "destinations": {"frontier": FRONTIER_FOR_SECRETS, "other": FRONTIER_FOR_SECRETS}
    },
    "a destination comes home": frontier(kind="local"),
    "a classifier raises less": {"classify": with_entry(CLASSIFY, "iban",
                                                        **{"raise": {"compartments": ["pii"]}})},
    "a classifier waits for more": {
        "classify": with_entry(CLASSIFY, "email", when={"detector": "email", "min_count": 3})
    },
    "a classifier wants to be surer": {
        "classify": with_entry(CLASSIFY, "email",
                               when={"detector": "email", "min_likelihood": "very_likely"})
    },
    "a detector that raised to the top is classified": {
        "classify": [*CLASSIFY, {"id": "ip", "when": {"detector": "ip"},
                                 "raise": {"compartments": ["pii"]}}]
    },
    "a declassifier removes more": {
        "declassifiers": [{**REDACT, "removes": {"compartments": ["pii", "payment"]}}]
    },
    "a declassifier looks for less": {"declassifiers": [{**REDACT, "types": ["email"]}]},
    "a declassifier is new": {"declassifiers": [REDACT, {**REDACT, "id": "redact-v2"}]},
    "the default label is lower": {"default_label": "internal"},
    "the leak budget is larger": {"leak_budget_bits": 65},
    "approvers are others": {"approvers": KEYS},
    "fewer approvals": {"activation": {"guardrail_approvals": 1}},
    "a level between": {
        "labels": {"levels": ["public", "internal", "inner", "confidential", "restricted"]}
    },
}  # fmt: skip


@pytest.mark.parametrize("name", TIGHTER)
def test_what_tightens_is_let_through_in_an_emergency(name: str) -> None:
    assert loosenings(OLD, read(**TIGHTER[name])) == ()


@pytest.mark.parametrize("name", LOOSER)
def test_what_loosens_is_not(name: str) -> None:
    old = read(default_label="confidential") if "default" in name else OLD
    assert loosenings(old, read(**LOOSER[name]))


@pytest.mark.parametrize(
    ("changes", "guarded"),
    [
        ({}, False),
        ({"rules": RULES}, False),
        ({"rules": [*BASE["rules"], {"id": "no", "deny": {"to": {"region": "us"}}}]}, False),
        ({"tests": []}, False),
        ({"guardrails": []}, True),
        ({"guardrails": [*GUARDRAILS, {"id": "more", "deny": {"to": {"region": "us"}}}]}, True),
        ({"approvers": KEYS}, True),
        ({"activation": {"guardrail_approvals": 0}}, True),
        (frontier(kind="local"), True),
        (frontier(region="eu"), False),
        (frontier(clearance={"level": "restricted", "compartments": ["secret"]}), False),
        ({"classify": CLASSIFY[1:]}, False),
        ({"classify": with_entry(CLASSIFY, "secret-aws", **{"raise": {"level": "public"}})}, True),
        ({"declassifiers": [{**REDACT, "removes": {"compartments": ["secret"]}}]}, True),
    ],
)
def test_what_needs_approvers(changes: dict[str, Any], guarded: bool) -> None:
    assert bool(guarded_changes(OLD, read(**changes))) is guarded


def test_moving_lines_and_reordering_is_no_change() -> None:
    moved = read(approvers=KEYS[1::-1], classify=CLASSIFY[::-1], rules=BASE["rules"][::-1])
    assert guarded_changes(OLD, moved) == loosenings(OLD, moved) == ()


A, B = Obligation("redact", "r"), Obligation("no_tools")


@pytest.mark.parametrize(
    ("before", "after", "is_looser"),
    [
        ("deny", "deny", False),
        ("deny", "promise", True),
        ("deny", "allow", True),
        ("promise", "deny", False),
        ("promise", "promise", False),
        ("promise", "allow", True),
        ("allow", "deny", False),
        ("allow", "promise", False),
        ("allow", "allow", False),
    ],
)
def test_a_ruling_is_looser_when_more_may_happen(before: Any, after: Any, is_looser: bool) -> None:
    promise = frozenset({"no_tools"})
    was = Ruling(before, "r", promise if before == "promise" else frozenset())
    now = Ruling(after, "r", promise if after == "promise" else frozenset())
    assert looser(was, now) is is_looser


def test_fewer_obligations_are_looser_and_others_too() -> None:
    one, both, other = (
        ruling(Verdict(False, "r", "", "", promise=promise)) for promise in ((A,), (A, B), (B,))
    )
    assert looser(both, one) and looser(one, other)
    assert not looser(one, both)


def test_rulings_of_old_and_new_records_are_read() -> None:
    stated = {
        "old-yes": [True, "r"],
        "old-no": [False, "r"],
        "yes": ["allow", "r"],
        "after": ["promise", "r", ["no_tools"]],
        "old-after": [False, "r", ["no_tools"]],
        "junk": "allow",
        "strange": ["perhaps", "r"],
    }
    found = recorded_rulings(stated)
    assert {name: one.decision for name, one in found.items()} == {
        "old-yes": "allow",
        "old-no": "deny",
        "yes": "allow",
        "after": "promise",
        "old-after": "promise",
    }
    assert recorded_rulings(None) == {}
