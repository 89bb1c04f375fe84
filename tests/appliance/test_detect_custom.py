"""Detectors that a policy defines: what they find, what RE2 refuses, what gitleaks' form gives."""

from __future__ import annotations

import pytest

from conductor.core import Likelihood
from conductor.detect.custom import custom_fault
from conductor.detect.detectors import known
from conductor.detect.gitleaks import import_rules
from conductor.detect.profile import DEFAULT_PROFILE, Custom, Hotwords, Profile
from conductor.detect.scan import scan_value
from conductor.errors import ConfigError

PROJECTS = Custom("custom.projects", words=("bluebird", "red heron", "Grüne Möwe"))
STAFF = Custom(
    "custom.staff",
    pattern="E[0-9]{6}",
    likelihood=Likelihood.VERY_LIKELY,
    hotwords=Hotwords(("employee", "staff"), within_chars=20),
    without_hotword=Likelihood.UNLIKELY,
    exclude=("e000000",),
)
PROFILE = Profile((PROJECTS, STAFF), ("IT", "US"))


def found(text: str, profile: Profile = PROFILE) -> dict[str, Likelihood]:
    return {
        f.detector: f.likelihood for f in scan_value({"content": text}, profile=profile).findings
    }


@pytest.mark.parametrize(
    "text",
    [
        "tell me about Bluebird.",
        "(BLUEBIRD)",
        "red  heron",
        "Red\nHeron",
        "grüne möwe",
        "GRÜNE MÖWE",
        "grune mowe",
        "blue\u200bbird",
        "ｂｌｕｅｂｉｒｄ",
        "b l u e b i r d",
        "**blue**bird",
        "&#98;luebird",
        "Ymx1ZWJpcmQgaXMgYSBwcm9qZWN0",
    ],
)
def test_words_of_a_policy_are_found_in_every_view_that_keeps_words_apart(text: str) -> None:
    assert found(text) == {"custom.projects": Likelihood.LIKELY}


@pytest.mark.parametrize("text", ["bluebirds", "xbluebird", "blue bird", "redheron", "heron red"])
def test_a_part_of_a_word_is_no_finding(text: str) -> None:
    assert found(text) == {}


def test_a_hotword_nearby_makes_a_match_likelier() -> None:
    assert found("staff E123456") == {"custom.staff": Likelihood.VERY_LIKELY}
    assert found("E123456 is an Employee") == {"custom.staff": Likelihood.VERY_LIKELY}
    assert found("E123456") == {"custom.staff": Likelihood.UNLIKELY}
    assert found("staff " + "x " * 20 + "E123456") == {"custom.staff": Likelihood.UNLIKELY}
    assert found("staffing E123456") == {"custom.staff": Likelihood.UNLIKELY}


def test_an_excluded_match_is_none() -> None:
    assert found("staff E000000") == {}


def test_a_match_without_a_hotword_may_be_no_finding_at_all() -> None:
    strict = Custom("custom.x", pattern="Q[0-9]{4}", hotwords=Hotwords(("case",)))
    assert found("Q1234", Profile((strict,))) == {}
    assert found("case Q1234", Profile((strict,))) == {"custom.x": Likelihood.LIKELY}


def test_entropy_tells_a_drawn_value_from_a_written_one() -> None:
    keys = Profile((Custom("custom.k", pattern="k_([a-z0-9]{12})", min_entropy=3.0),))
    assert found("k_q8w3zr5t1m9x", keys) == {"custom.k": Likelihood.LIKELY}
    assert found("k_aaaaaaaaaaab", keys) == {}


def test_numbers_dialled_in_a_region_need_the_region() -> None:
    text = "reach him under 06 6982 0123 today"
    assert found(text, DEFAULT_PROFILE) == {}
    assert found(text) == {"phone": Likelihood.LIKELY}


@pytest.mark.parametrize(
    ("text", "likelihood"),
    [
        ("reach him under 06/6982012", Likelihood.LIKELY),
        ("reach him under 333/1234567", Likelihood.POSSIBLE),
        ("reach him under 345 1234567", Likelihood.POSSIBLE),
        ("order 2024/00123 of paper cups", Likelihood.UNLIKELY),
        ("file 12 O 345/2023", Likelihood.UNLIKELY),
        ("protocol 0123/2024-12345", Likelihood.POSSIBLE),
        ("tel. 2024/00123", Likelihood.VERY_LIKELY),
    ],
)
def test_a_year_beside_a_slash_is_that_of_a_file_unless_it_is_called_a_telephone(
    text: str, likelihood: Likelihood
) -> None:
    assert found(text, Profile(phone_regions=("IT", "DE", "AT"))) == {"phone": likelihood}


def test_detectors_of_a_policy_are_known_with_it_alone() -> None:
    assert known("custom.staff", PROFILE)
    assert not known("custom.staff", DEFAULT_PROFILE)
    assert known("iban", DEFAULT_PROFILE)
    assert not known("ibann", PROFILE)


def test_a_profile_is_the_same_after_a_journey_and_differs_by_its_digest() -> None:
    assert Profile.decode(PROFILE.encoded) == PROFILE
    assert Profile.decode(PROFILE.encoded).digest == PROFILE.digest
    digests = {PROFILE.digest, DEFAULT_PROFILE.digest, Profile((PROJECTS,)).digest}
    assert len(digests | {Profile(names=True).digest}) == 4


@pytest.mark.parametrize("pattern", [r"E[0-9]{6}", r"\bACME-(?:A|B)\d+\b", "k_([a-z]{4})", "é+x"])
def test_patterns_that_can_be_used_have_no_fault(pattern: str) -> None:
    assert custom_fault(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?=x)y",
        r"(a)\1",
        "a{1001}",
        "x*",
        "",
        "(a)(b)",
        "[",
        "(a{500}){500}",
        "(?:[a-z]{900}x){30}",
    ],
)
def test_patterns_that_cannot_be_used_have_a_fault(pattern: str) -> None:
    assert custom_fault(pattern)


GITLEAKS = r"""
title = "ours"
[[rules]]
id = "Acme Token"
regex = '''(?i)\b(acme)_(?P<secret>[a-z0-9]{20})\b'''
secretGroup = 2
entropy = 3
keywords = ["acme_"]
[[rules]]
id = "by-path"
path = '''\.pem$'''
[[rules]]
id = "looks-ahead"
regex = '''foo(?=bar)'''
"""


def test_rules_of_gitleaks_become_detectors_of_a_policy() -> None:
    imported = import_rules(GITLEAKS)
    (entry,) = imported.detectors
    assert [name for name, _ in imported.refused] == ["by-path", "looks-ahead"]
    assert entry == {
        "id": "custom.gl-acme-token",
        "pattern": r"(?i)\b(?:acme)_([a-z0-9]{20})\b",
        "likelihood": "likely",
        "min_entropy": 3.0,
    }
    custom = Custom(entry["id"], pattern=entry["pattern"], min_entropy=entry["min_entropy"])
    assert "custom.gl-acme-token" in found("acme_q8w3zr5t1m9xk2p4v6b7", Profile((custom,)))
    assert found("acme_aaaaaaaaaaaaaaaaaaaa", Profile((custom,))) == {}


@pytest.mark.parametrize("text", ["rules = [", "rules = 3", "rules = ['x']"])
def test_what_is_no_configuration_of_gitleaks_is_told(text: str) -> None:
    with pytest.raises(ConfigError):
        import_rules(text)
