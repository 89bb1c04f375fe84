"""Tests of a policy that speaks of persons: they take the model for names, or say that it is not
here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from conductor.activation.testing import tried, tried_whole
from conductor.config import Site
from support.configs import local_worker, remote_worker, small_site

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
PEOPLE: dict[str, Any] = {
    "id": "people",
    "when": {"detector": ["person", "address"]},
    "raise": {"level": "confidential"},
}
CASES = [
    ("a label", {"label": "internal"}, {"decision": "allow"}),
    ("no name", {"text": "Plan a party for ten children."}, {"decision": "allow"}),
    ("a name", {"text": "Dear Katharina Hofmann, thank you."}, {"decision": "deny"}),
]


def site(tmp_path: Path, models: Path) -> Site:
    cases = [
        {"name": name, "given": {**given, "to": "frontier"}, "expect": expect}
        for name, given, expect in CASES
    ]
    return small_site(
        tmp_path,
        workers=[local_worker("a", port=1), remote_worker("b")],
        policy={"classify": [PEOPLE], "tests": cases},
        appliance={"paths": {"root": str(tmp_path), "models": str(models)}},
    )


def test_without_the_model_no_test_of_a_text_passes_and_each_says_why(tmp_path: Path) -> None:
    results = {result.name: result for result in tried_whole(site(tmp_path, tmp_path / "none"))}
    assert {name: result.passed for name, result in results.items()} == {
        "a label": True,
        "no name": False,
        "a name": False,
    }
    assert "names could not be sought: run 'conductor models pull" in results["no name"].got


def test_by_rules_alone_a_test_that_names_may_decide_is_left_open(tmp_path: Path) -> None:
    """A first start must neither refuse a good policy for want of the model, nor wait for it."""
    results = tried(site(tmp_path, tmp_path / "none"))
    assert [(result.name, result.passed) for result in results] == [
        ("a label", True),
        ("no name", True),
    ]


@pytest.mark.model
def test_with_the_model_names_are_sought_in_the_texts_of_tests(tmp_path: Path) -> None:
    results = tried_whole(site(tmp_path, MODELS))
    assert [(result.name, result.passed) for result in results] == [
        ("a label", True),
        ("no name", True),
        ("a name", True),
    ]
    assert "label confidential" in results[2].got
