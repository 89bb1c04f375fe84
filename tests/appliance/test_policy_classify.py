"""What raises a label: findings by count and likelihood, and labels that a caller declares."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import Finding, Likelihood, Scan
from conductor.detect.detectors import DETECTORS
from conductor.labels import Label
from conductor.policy.decide import classify
from conductor.policy.document import Policy
from support.policies import found, read
from support.policystrategies import labels

POLICY = read({})
LATTICE = POLICY.lattice


def label(text: str) -> Label:
    return LATTICE.parse(text)


@pytest.mark.parametrize(
    ("base", "seen", "expected"),
    [
        ("public", found(), "public"),
        ("public", found(("email", 1)), "public+pii"),
        ("public", found(("email", 0)), "public+pii"),
        ("restricted", found(("iban", 1)), "restricted+payment+pii"),
        ("internal", found(("iban", 1), ("email", 2)), "confidential+payment+pii"),
        ("internal", found(("secret.aws", 1)), "restricted+secret"),
        ("public", found(unscanned=("an image",)), "public+unscanned"),
        ("public", found(("not-a-detector", 1)), "restricted+payment+pii+secret+unscanned"),
    ],
)
def test_findings_raise_a_label(base: str, seen: Scan, expected: str) -> None:
    assert LATTICE.show(classify(POLICY, seen, label(base))) == expected


def test_a_classifier_waits_for_its_minimum_over_all_views() -> None:
    many = {
        "id": "many",
        "when": {"detector": "email", "min_count": 3},
        "raise": {"level": "restricted"},
    }
    policy = read({"classify": [many]})
    assert classify(policy, found(("email", 2)), Label(1)) == Label(1)
    assert classify(policy, found(("email", 2), ("email", 1)), Label(1)) == Label(3)


def test_a_detector_that_nobody_classified_raises_to_the_top() -> None:
    policy = read({"classify": []})
    for detector in DETECTORS:
        assert classify(policy, found((detector, 1)), Label(0)) == LATTICE.top


def test_a_classifier_may_name_a_family_or_a_list_and_counts_them_together() -> None:
    raises = {"level": "restricted"}
    many = {"id": "c", "when": {"detector": ["secret", "iban"], "min_count": 3}, "raise": raises}
    policy = read({"classify": [many]})
    assert classify(policy, found(("secret.aws", 1), ("iban", 1)), Label(0)) == Label(0)
    both = found(("secret.aws", 1), ("secret.token", 1), ("iban", 1))
    assert classify(policy, both, Label(0)) == Label(3)


@pytest.mark.parametrize(
    ("asked", "seen", "raised"),
    [
        ("likely", [("email", 1, Likelihood.POSSIBLE)], False),
        ("likely", [("email", 1, Likelihood.LIKELY)], True),
        ("very_unlikely", [("email", 1, Likelihood.VERY_UNLIKELY)], True),
        (None, [("email", 1, Likelihood.UNLIKELY)], False),
        (None, [("email", 1, Likelihood.POSSIBLE)], True),
    ],
)
def test_a_finding_counts_from_the_likelihood_asked_for(
    asked: str | None, seen: list[tuple[str, int, Likelihood]], raised: bool
) -> None:
    when = {"detector": "email"} | ({"min_likelihood": asked} if asked else {})
    policy = read({"classify": [{"id": "c", "when": when, "raise": {"level": "restricted"}}]})
    assert classify(policy, found(*seen), Label(0)) == Label(3 if raised else 0)


def test_only_findings_as_likely_as_asked_are_counted() -> None:
    when = {"detector": "email", "min_likelihood": "likely", "min_count": 2}
    policy = read({"classify": [{"id": "c", "when": when, "raise": {"level": "restricted"}}]})
    doubtful = found(("email", 9, Likelihood.POSSIBLE), ("email", 1, Likelihood.LIKELY))
    assert classify(policy, doubtful, Label(0)) == Label(0)
    sure = found(("email", 1, Likelihood.VERY_LIKELY), ("email", 1, Likelihood.LIKELY))
    assert classify(policy, sure, Label(0)) == Label(3)


def test_what_an_unclassified_detector_itself_doubts_raises_nothing() -> None:
    policy = read({"classify": []})
    assert classify(policy, found(("id.hr.oib", 1, Likelihood.UNLIKELY)), Label(0)) == Label(0)
    assert classify(policy, found(("id.hr.oib", 1, Likelihood.POSSIBLE)), Label(0)) == LATTICE.top


# -- declared labels --------------------------------------------------------------------------

DMS = {
    "id": "dms",
    "when": {"declared": {"from": ["header"], "caller": ["svc-dms", "svc-mail"]}},
    "raise": {"from_declared": True, "compartments": ["pii"]},
}


def declared(policy: Policy, caller: str | None) -> str:
    """What public data becomes that this caller declares as confidential."""
    raised = classify(policy, found(), Label(0), caller=caller, declared=label("confidential"))
    return LATTICE.show(raised)


def test_a_declared_label_counts_when_the_policy_says_nothing_of_declaring() -> None:
    assert declared(POLICY, "app") == declared(POLICY, None) == "confidential"


def test_a_policy_that_names_callers_believes_only_them() -> None:
    policy = read({"classify": [DMS]})
    assert declared(policy, "svc-dms") == declared(policy, "svc-mail") == "confidential+pii"
    assert declared(policy, "app") == declared(policy, None) == LATTICE.show(LATTICE.top)
    assert policy.classifiers.believes("svc-dms")
    assert not policy.classifiers.believes("app")


def test_who_may_declare_and_does_not_is_raised_by_nothing() -> None:
    policy = read({"classify": [DMS]})
    assert classify(policy, found(), Label(0), caller="svc-dms") == Label(0)


# -- never lower ------------------------------------------------------------------------------

seen_findings = st.lists(
    st.builds(
        Finding,
        st.sampled_from([*sorted(DETECTORS), "other"]),
        st.integers(0, 5),
        st.just("raw"),
        st.sampled_from(list(Likelihood)),
    ),
    max_size=4,
)
THRESHOLDS = read(
    {
        "classify": [
            {
                "id": "often",
                "when": {"detector": "email", "min_count": 3, "min_likelihood": "likely"},
                "raise": {"level": "confidential"},
            },
            {
                "id": "secrets",
                "when": {"detector": "secret"},
                "raise": {"compartments": ["secret"]},
            },
            DMS,
        ]
    }
)


@given(
    labels,
    seen_findings,
    seen_findings,
    st.booleans(),
    st.none() | labels,
    st.sampled_from([None, "app", "svc-dms"]),
)
def test_classifying_never_lowers_and_more_of_anything_never_lowers(
    base: Label,
    seen: list[Finding],
    more: list[Finding],
    torn: bool,
    said: Label | None,
    caller: str | None,
) -> None:
    unscanned = ("deep",) if torn else ()
    for policy in (POLICY, THRESHOLDS):
        raised = classify(
            policy, Scan((*seen, *more), 10, unscanned), base, caller=caller, declared=said
        )
        assert base.join(raised) == raised
        fewer = classify(policy, Scan(tuple(seen), 10), base)
        assert fewer.join(raised) == raised
        if said is not None:
            assert said.join(raised) == raised


@given(seen_findings, st.sampled_from(list(Likelihood)), st.integers(0, 3))
def test_a_surer_or_more_frequent_finding_never_lowers(
    seen: list[Finding], surer: Likelihood, often: int
) -> None:
    stronger = [
        Finding(item.detector, item.count + often, item.view, max(item.likelihood, surer))
        for item in seen
    ]
    for policy in (POLICY, THRESHOLDS):
        before = classify(policy, Scan(tuple(seen), 10), Label(0))
        after = classify(policy, Scan(tuple(stronger), 10), Label(0))
        assert before.join(after) == after
