"""Allows that ask for something first, what declassifiers take off a label, and rules in shadow."""

from __future__ import annotations

from typing import Any

import pytest

from conductor.core import Obligation, Verdict
from conductor.labels import Label
from conductor.policy.decide import applying, decide
from conductor.policy.document import Policy
from support.policies import read, worker_at

REDACT = Obligation("redact", "cut")
NO_TOOLS = Obligation("no_tools")
DECLASSIFIERS = [
    {"id": "cut", "kind": "redact", "types": ["email"], "removes": {"compartments": ["pii"]}},
    {
        "id": "sign",
        "kind": "approved",
        "approvers": ["anna"],
        "removes": {"level": "internal", "compartments": ["secret"]},
    },
]
APPROVERS = [{"id": "anna", "public_key": "A" * 43 + "="}]


def allow(name: str, when: dict[str, Any], *obligations: Any, **more: Any) -> dict[str, Any]:
    asked = {"obligations": list(obligations)} if obligations else {}
    return {"id": name, "allow": {"to": {"kind": "remote"}, "if": when}, **asked, **more}


def policy_of(*rules: dict[str, Any], **changes: Any) -> Policy:
    tree = {"declassifiers": DECLASSIFIERS, "approvers": APPROVERS, "rules": list(rules)}
    return read({**tree, **changes})


CUT = {"redact": {"by": "cut"}}
PLAIN = allow("plain", {"level_at_most": "internal"})
CLEANED = allow("cleaned", {"compartments_any": ["pii"]}, CUT)


def asked(
    policy: Policy, text: str, to: str = "frontier", origin: str | None = None, *done: Obligation
) -> Verdict:
    data, before = policy.lattice.parse(text), policy.lattice.parse(origin or text)
    worker = worker_at(policy.destinations[to])
    return decide(policy, data, worker, origin=before, discharged=frozenset(done))


def test_data_above_the_clearance_is_promised_if_a_declassifier_brings_it_below() -> None:
    verdict = asked(policy_of(CLEANED), "internal+pii")
    assert (verdict.allow, verdict.rule, verdict.promise) == (False, "cleaned", (REDACT,))
    assert verdict.position.startswith("p.yaml:1:")
    assert "redact:cut" in verdict.reason


def test_what_a_promise_let_out_is_told_under_its_rule_not_the_plain_one_beside_it() -> None:
    verdict = asked(policy_of(PLAIN, CLEANED), "internal", "frontier", "internal+pii", REDACT)
    assert (verdict.allow, verdict.rule, verdict.promise) == (True, "cleaned", ())
    untouched = asked(policy_of(PLAIN, CLEANED), "internal")
    assert (untouched.allow, untouched.rule) == (True, "plain")


@pytest.mark.parametrize(
    ("data", "origin", "done", "allowed"),
    [
        ("internal", "internal+pii", [REDACT], True),
        ("internal", "internal+pii", [], False),  # lowered, but nobody says by what
        ("internal+pii", "internal+pii", [REDACT], False),  # said to be done, and left over
        ("internal", "internal", [REDACT], False),  # the rule is for what held something
        ("internal", "internal+pii", [NO_TOOLS], False),
        ("confidential", "confidential+pii", [REDACT], False),  # the level stays
    ],
)
def test_an_allow_with_obligations_counts_for_what_was_done_to_what_it_speaks_of(
    data: str, origin: str, done: list[Obligation], allowed: bool
) -> None:
    assert asked(policy_of(CLEANED), data, "frontier", origin, *done).allow is allowed


def test_a_plain_allow_beside_one_with_obligations_still_needs_them() -> None:
    policy = policy_of(PLAIN, allow("careful", {"level_at_most": "internal"}, "no_tools"))
    verdict = asked(policy, "internal")
    assert (verdict.allow, verdict.rule, verdict.promise) == (False, "careful", (NO_TOOLS,))
    assert asked(policy, "internal", "frontier", None, NO_TOOLS).rule == "careful"


def test_obligations_of_several_allows_are_united() -> None:
    policy = policy_of(CLEANED, allow("careful", {"level_at_most": "internal"}, "no_tools"))
    assert asked(policy, "internal+pii").promise == (NO_TOOLS, REDACT)
    assert not asked(policy, "internal", "frontier", "internal+pii", REDACT).allow
    assert asked(policy, "internal", "frontier", "internal+pii", REDACT, NO_TOOLS).allow


def test_an_allow_whose_fact_is_missing_still_asks_for_its_obligations() -> None:
    """Otherwise a destination could shed them by not stating the fact."""
    dpa = {"kind": "remote", "dpa": True, "clearance": {"level": "internal", "compartments": []}}
    careful = {"id": "careful", "allow": {"to": {"dpa": True}}, "obligations": ["no_tools"]}
    policy = policy_of(PLAIN, careful, destinations={"stated": dpa})
    for to in ("stated", "frontier"):
        verdict = asked(policy, "internal", to)
        assert (verdict.promise, verdict.error) == ((NO_TOOLS,), to == "frontier")
    alone = policy_of(careful, destinations={"stated": dpa})
    assert not asked(alone, "internal", "frontier").promise
    assert asked(alone, "internal", "frontier").rule == "baseline.remote"


@pytest.mark.parametrize(
    ("more", "rule"),
    [
        ({"id": "no", "deny": {"to": {"kind": "remote"}}}, "no"),
        (
            {"id": "no", "deny": {"to": {"kind": "remote"}, "if": {"level_at_most": "internal"}}},
            "no",
        ),
        ({"id": "no", "deny": {"if": {"compartments_none": ["pii"]}}}, "floor.clearance"),
    ],
)
def test_nothing_is_promised_that_would_be_denied_then(more: dict[str, Any], rule: str) -> None:
    verdict = asked(policy_of(CLEANED, more), "internal+pii")
    assert (verdict.allow, verdict.promise) == (False, ())
    assert verdict.rule in {rule, "floor.clearance"}


def test_a_guardrail_against_what_a_declassifier_takes_off_does_not_stop_the_promise() -> None:
    policy = policy_of(
        CLEANED,
        guardrails=[{"id": "no-pii", "deny": {"if": {"compartments_any": ["pii"]}}}],
    )
    assert asked(policy, "internal+pii").promise == (REDACT,)
    assert asked(policy, "internal+pii", "box").rule == "no-pii"


def test_an_approval_lowers_level_and_compartments_as_its_declassifier_says() -> None:
    approve = {"approve": {"by": "sign"}}
    policy = policy_of(allow("signed", {"compartments_any": ["secret"]}, approve))
    assert asked(policy, "restricted+secret").promise == (Obligation("approve", "sign"),)
    assert asked(policy, "restricted+payment+secret").rule == "floor.clearance"


@pytest.mark.parametrize(
    ("label", "obligations", "lowered"),
    [
        ("internal+payment+pii", [REDACT], "internal+payment"),
        ("restricted+secret", [Obligation("approve", "sign")], "internal"),
        ("public+secret", [Obligation("approve", "sign")], "public"),
        ("restricted+pii+secret", [REDACT, Obligation("approve", "sign")], "internal"),
        ("internal+pii", [NO_TOOLS, Obligation("redact", "nobody")], "internal+pii"),
        ("internal+pii", [], "internal+pii"),
    ],
)
def test_a_declassifier_takes_off_what_it_says_and_nothing_else(
    label: str, obligations: list[Obligation], lowered: str
) -> None:
    policy = policy_of()
    assert policy.lattice.show(policy.lowered(policy.lattice.parse(label), obligations)) == lowered


def test_obligations_bind_local_workers_too_where_the_rule_speaks_of_them() -> None:
    policy = policy_of(
        {"id": "all", "allow": {"if": {"level_at_most": "internal"}}, "obligations": [CUT]}
    )
    assert asked(policy, "public", "box").promise == (REDACT,)
    assert asked(policy_of(CLEANED), "internal+pii", "box").rule == "baseline.local"


def test_an_origin_that_is_none_of_this_site_goes_nowhere() -> None:
    policy, worker = policy_of(PLAIN), worker_at(policy_of(PLAIN).destinations["frontier"])
    verdict = decide(policy, Label(0), worker, origin=Label(9))
    assert (verdict.allow, verdict.rule, verdict.error) == (False, "floor.label", True)


# -- shadow -----------------------------------------------------------------------------------


def test_a_shadow_rule_is_noted_and_decides_nothing() -> None:
    deny = {"id": "tighter", "mode": "shadow", "deny": {"to": {"kind": "remote"}}}
    verdict = asked(policy_of(PLAIN, deny), "internal")
    assert (verdict.allow, verdict.rule) == (True, "plain")
    assert [(shadow.rule, shadow.effect) for shadow in verdict.shadow] == [("tighter", "deny")]
    assert verdict.shadow[0].position.startswith("p.yaml:1:")


@pytest.mark.parametrize(
    ("effect", "noted"), [("deny", True), ("allow", False)], ids=["a deny", "an allow"]
)
def test_a_shadow_rule_with_a_missing_fact_is_noted_if_it_would_have_applied(
    effect: str, noted: bool
) -> None:
    """`box` states no region."""
    rule = {"id": "s", "mode": "shadow", effect: {"to": {"region": "us"}}}
    assert bool(asked(policy_of(rule), "internal", "box").shadow) is noted


def test_a_shadow_allow_with_obligations_is_asked_of_the_first_label() -> None:
    policy = policy_of(PLAIN, {**CLEANED, "mode": "shadow"})
    assert asked(policy, "internal", "frontier", "internal+pii").shadow[0].rule == "cleaned"
    assert asked(policy, "internal").shadow == ()
    assert asked(policy, "internal+pii").promise == ()


def test_a_guardrail_may_be_tried_out_in_shadow() -> None:
    trial = {"id": "trial", "mode": "shadow", "deny": {"to": {"kind": "remote"}}}
    verdict = asked(policy_of(PLAIN, guardrails=[trial]), "internal")
    assert verdict.allow
    assert verdict.shadow[0].rule == "trial"


def test_a_rule_that_is_off_is_not_even_noted() -> None:
    off = {"id": "tighter", "mode": "off", "deny": {"to": {"kind": "remote"}}}
    verdict = asked(policy_of(PLAIN, off), "internal")
    assert (verdict.allow, verdict.shadow) == (True, ())


def test_what_applies_is_told_though_the_floor_decides() -> None:
    policy = policy_of(CLEANED)
    worker = worker_at(policy.destinations["frontier"])
    assert applying(policy, policy.lattice.parse("internal+pii+secret"), worker) == (
        "no-secret-remote",
        "cleaned",
    )
