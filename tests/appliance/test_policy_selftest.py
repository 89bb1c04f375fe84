"""Running the tests that a policy carries, and the policies that are shipped."""

from __future__ import annotations

import datetime
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conductor.activation.testing import tried, tried_whole
from conductor.config import load
from conductor.core import Scan, SecretRef
from conductor.detect.detectors import DETECTORS, NAMES
from conductor.detect.profile import Profile
from conductor.labels import Label
from conductor.policy.lint import lint
from conductor.policy.selftest import run_tests, untested
from conductor.settings import Key
from support.policies import read

ROOT = Path(__file__).parents[2]
CONFIGS = ROOT / "configs"
MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
SITES = sorted({path.parent for path in CONFIGS.rglob("policy.yaml")})
EXAMPLES = {"hospital", "bank", "law-firm", "public-sector", "air-gapped"}
KEYS = (
    Key("app", SecretRef("env", "X"), None),
    Key("clerk", SecretRef("env", "X"), None, default_label=Label(2)),
    Key("trusted", SecretRef("env", "X"), None, declare_labels=True),
)


def result(given: dict[str, Any], expect: dict[str, Any], **changes: Any) -> tuple[bool, str]:
    case = {"name": "t", "given": given, "expect": expect}
    (outcome,) = run_tests(read({"tests": [case], **changes}), KEYS)
    return outcome.passed, outcome.got


OUT = {"to": "frontier"}
ALLOW, DENY = {"decision": "allow"}, {"decision": "deny"}


@pytest.mark.parametrize(
    ("given", "expect", "passed"),
    [
        ({"label": "internal", **OUT}, ALLOW, True),
        ({"label": "internal", **OUT}, DENY, False),
        ({"label": "internal", **OUT}, {**ALLOW, "rule": "ordinary-work-may-go-out"}, True),
        ({"label": "internal", **OUT}, {**ALLOW, "rule": "no-secret-remote"}, False),
        ({"label": "internal", **OUT}, {**ALLOW, "label": "internal"}, True),
        ({"label": "internal", **OUT}, {**ALLOW, "label": "public"}, False),
        # The floor decides; the guardrail behind it applies all the same.
        ({"label": "internal+secret", **OUT}, {**DENY, "rule": "no-secret-remote"}, True),
        ({"label": "internal+secret", **OUT}, {**DENY, "rule": "floor.clearance"}, True),
        ({"label": "internal+pii", **OUT}, {**DENY, "rule": "no-secret-remote"}, False),
        ({"text": "Hello there", **OUT}, {**ALLOW, "label": "internal"}, True),
        (
            {"text": "Pay IT60X0542811101000000123456", **OUT},
            {**DENY, "label": "confidential+payment+pii"},
            True,
        ),
        ({"text": "Hello", "key": "clerk", **OUT}, {**DENY, "label": "confidential"}, True),
        ({"text": "Hello", "key": "nobody", **OUT}, ALLOW, False),
        (
            {"text": "Hello", "key": "trusted", "declared": "restricted", **OUT},
            {**DENY, "label": "restricted"},
            True,
        ),
        (
            {"text": "Hello", "key": "app", "declared": "public", **OUT},
            {**DENY, "label": "restricted+payment+pii+secret+unscanned"},
            True,
        ),
    ],
)
def test_a_test_passes_when_all_that_it_expects_comes_out(
    given: dict[str, Any], expect: dict[str, Any], passed: bool
) -> None:
    assert result(given, expect)[0] is passed


def test_a_text_may_have_several_lines() -> None:
    given = {"text": ["Dear Anna,", "pay IT60X0542811101000000123456"], **OUT}
    assert result(given, {**DENY, "label": "confidential+payment+pii"}) == (
        True,
        "deny, rule floor.clearance, label confidential+payment+pii",
    )


def test_a_shadow_rule_is_tested_by_what_it_would_have_done() -> None:
    shadow = {"id": "tighter", "mode": "shadow", "deny": {"to": {"kind": "remote"}}}
    rules = [{"id": "out", "allow": {"to": {"kind": "remote"}}}, shadow]
    given, expect = {"label": "internal", **OUT}, {**ALLOW, "shadow": "tighter"}
    assert result(given, expect, rules=rules)[0]
    assert not result({"label": "internal", "to": "box"}, expect, rules=rules)[0]


@pytest.mark.parametrize("why", ["names-missing", "scanner-died", "timeout", "detector-error"])
def test_a_text_that_was_not_scanned_fails_its_test_whatever_that_expects(why: str) -> None:
    """Not scanned is denied: a test that expects a deny would pass and prove nothing."""
    case = {"name": "t", "given": {"text": "Hello", **OUT}, "expect": DENY}
    (outcome,) = run_tests(
        read({"tests": [case]}), KEYS, lambda value, profile: Scan((), 0, (why,))
    )
    assert not outcome.passed
    assert "deny" not in outcome.got


def test_what_no_detector_can_read_is_a_property_of_the_text() -> None:
    case = {"name": "t", "given": {"text": "Hello", **OUT}, "expect": DENY}
    scan = Scan((), 5, ("names-script",))
    (outcome,) = run_tests(read({"tests": [case]}), KEYS, lambda value, profile: scan)
    assert (outcome.passed, outcome.got) == (
        True,
        "deny, rule floor.clearance, label internal+unscanned",
    )


def test_own_detectors_are_sought_and_no_model_is_needed_for_names() -> None:
    seen: list[Profile] = []

    def scanning(value: object, profile: Profile) -> Scan:
        seen.append(profile)
        return Scan((), 5)

    case = {"name": "t", "given": {"text": "Bluebird", **OUT}, "expect": DENY}
    policy = read(
        {
            "detectors": [{"id": "custom.x", "words": ["bluebird"]}],
            "classify": [
                {
                    "id": "c",
                    "when": {"detector": ["custom", "person"]},
                    "raise": {"level": "restricted"},
                }
            ],
            "tests": [case],
        }
    )
    assert run_tests(policy)[0].passed
    assert not run_tests(policy, (), scanning)[0].passed
    assert seen == [policy.profile]
    assert seen[0].names


def test_a_result_tells_nothing_of_the_text() -> None:
    case = {"name": "t", "given": {"text": "AKIAQ3EGUHSYW7LMNO4P", **OUT}, "expect": ALLOW}
    (outcome,) = run_tests(read({"tests": [case]}))
    assert not outcome.passed
    assert outcome.expected == "allow"
    assert "AKIA" not in repr(outcome)


def test_rules_that_no_test_names_are_told_save_those_that_are_off() -> None:
    off = {"id": "off", "mode": "off", "deny": {"to": {"kind": "remote"}}}
    policy = read({"rules": [off]})
    assert [rule.id for rule in untested(policy)] == ["no-secret-remote"]


# -- what is shipped --------------------------------------------------------------------------


def test_there_is_an_example_for_each_kind_of_site() -> None:
    assert {path.name for path in SITES if path.parent.name == "examples"} == EXAMPLES


@pytest.mark.parametrize("directory", SITES, ids=lambda path: path.name)
def test_every_shipped_policy_is_free_of_suspicion_and_passes_its_own_tests(
    directory: Path,
) -> None:
    site = load(directory)
    assert [str(item) for item in lint(site.policy, site, datetime.date(2026, 1, 1))] == []
    results = tried(site)
    assert results
    assert [result for result in results if not result.passed] == []


@pytest.mark.model
@pytest.mark.parametrize("directory", SITES, ids=lambda path: path.name)
def test_every_shipped_policy_passes_its_own_tests_with_names_too(directory: Path) -> None:
    site = load(directory)
    paths = replace(site.appliance.paths, models=MODELS)
    results = tried_whole(replace(site, appliance=replace(site.appliance, paths=paths)))
    assert len(results) == len(site.policy.tests)
    assert [result for result in results if not result.passed] == []


@pytest.mark.parametrize("directory", SITES, ids=lambda path: path.name)
def test_every_shipped_policy_says_what_each_detector_means(directory: Path) -> None:
    """Save persons and addresses, which are sought only where a policy speaks of them."""
    policy = load(directory).policy
    assert policy.classifiers.mentioned - {d.id for d in policy.detectors} >= DETECTORS - NAMES
