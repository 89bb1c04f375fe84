"""Markings are banners, not words: what counts, where, and how much."""

from __future__ import annotations

import pytest

from conductor.core import Likelihood
from conductor.detect.scan import scan_value
from detection.labelled import MARKED

PROSE = "The committee met in spring and agreed on most of the points.\n" * 12


def found(text: str) -> dict[str, Likelihood]:
    scan = scan_value({"messages": [{"role": "user", "content": text}]})
    likelihoods: dict[str, Likelihood] = {}
    for finding in scan.findings:
        before = likelihoods.get(finding.detector, Likelihood.VERY_UNLIKELY)
        likelihoods[finding.detector] = max(before, finding.likelihood)
    return {name: how for name, how in likelihoods.items() if how >= Likelihood.POSSIBLE}


@pytest.mark.parametrize("kind", MARKED)
@pytest.mark.parametrize(
    "place", ["{banner}\n{prose}", "{prose}{banner}", "Dear all,\n\n{banner}\n{prose}"]
)
def test_a_banner_at_either_end_of_a_text_is_found(kind: str, place: str) -> None:
    text = place.format(banner=MARKED[kind], prose=PROSE)
    assert found(text)[kind] >= Likelihood.LIKELY


@pytest.mark.parametrize(
    "text",
    [
        "He kept it secret, and top secret at that.",
        "The SECRET of life is in the kitchen, as everybody in the village knows.",
        'SECRET_NAME = "conductor-signing-key"',
        "export SECRET=1",
        "The official record was broken; officials were glad.",
        "confidential talks went on between the two sides",
        "Un posto riservato agli ospiti del segreto giardino.",
        "Das geheime Rezept bleibt geheim.",
        "the red amber and green of a traffic light",
        "a privileged few without prejudice",
        f"{PROSE}SECRET\n{PROSE}",
    ],
)
def test_a_word_is_no_banner(text: str) -> None:
    assert found(text) == {}


def test_a_title_in_capitals_may_be_a_banner() -> None:
    assert set(found("SECRET SANTA PARTY\n\nBring gifts.").values()) == {Likelihood.POSSIBLE}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("the note says TLP:RED on its first page", "marking.tlp.red"),
        ("(S//NF) The unit moved north.", "marking.us.secret"),
        ("(TS//SI) It moved again.", "marking.us.top-secret"),
        ("sent as SECRET//NOFORN by mistake", "marking.us.secret"),
        ("MSIP_Label_3f2b1c00-aaaa-bbbb-cccc-0123456789ab_Enabled=true", "marking.business.msip"),
    ],
)
def test_what_has_the_form_of_a_marking_counts_in_a_sentence(text: str, kind: str) -> None:
    assert found(PROSE + text + "\n" + PROSE)[kind] >= Likelihood.LIKELY


@pytest.mark.parametrize("value", ["secret", "SECRET", "Secret"])
def test_the_value_of_a_field_for_markings_is_one(value: str) -> None:
    for name in ("classification", "protective_marking", "Einstufung"):
        kinds = {f.detector for f in scan_value({"metadata": {name: value}}).findings}
        assert kinds == {"marking.uk.secret", "marking.us.secret"}


def test_a_greater_marking_is_not_the_lesser_one_as_well() -> None:
    assert "marking.us.secret" not in found("TOP SECRET\n" + PROSE)
    assert "marking.us.secret" not in found("NATO SECRET\n" + PROSE)
    assert "marking.uk.official" not in found("OFFICIAL-SENSITIVE\n" + PROSE)
    assert "marking.tlp.amber" not in found("TLP:AMBER+STRICT\n" + PROSE)


def test_many_banners_cost_time_in_proportion() -> None:
    import time

    def seconds(lines: int) -> float:
        start = time.thread_time()
        scan_value({"content": "SECRET\n" * lines})
        return time.thread_time() - start

    seconds(100)
    assert seconds(16_000) < 40 * seconds(2_000) + 0.1
