"""How many things are found, and how many that are none, in a labelled set of five languages."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest

from conductor.core import Likelihood
from conductor.detect.scan import DETECTORS, scan_value
from detection.labelled import FRAMES, MARKED, NAMES, samples
from detection.numbers import KINDS

IDS = [f"id.{kind}" for kind in KINDS]
BARS = {
    **dict.fromkeys(NAMES, (0.97, 0.97)),
    **dict.fromkeys(IDS, (0.97, 0.75)),
    **dict.fromkeys(MARKED, (1.0, 0.8)),
}
"""Least recall and precision. A number of one country is now and then one of another as well."""


ALIKE = (
    {"id.cz.rc", "id.sk.rc"},
    {"id.ee.ik", "id.lt.asmens"},
    {"marking.uk.top-secret", "marking.us.top-secret"},
    {"marking.uk.secret", "marking.us.secret"},
)
"""Kinds that nothing but context tells apart: each counts for the other."""


@cache
def measured() -> tuple[Counter[str], Counter[str], Counter[str]]:
    """By kind: how many there are, how many of these were found, how many others were."""
    there, right, wrong = Counter[str](), Counter[str](), Counter[str]()
    for sample in samples():
        scan = scan_value({"messages": [{"role": "user", "content": sample.text}]})
        kinds = {f.detector for f in scan.findings if f.likelihood >= Likelihood.POSSIBLE}
        if sample.kind is not None:
            there[sample.kind] += 1
            right[sample.kind] += sample.kind in kinds
        alike = next((kin for kin in ALIKE if sample.kind in kin), {sample.kind})
        wrong.update(kinds - alike)
    return there, right, wrong


def test_the_set_has_every_kind_that_rules_find() -> None:
    apart = {"person", "address", "secret.private_key", "id.fr.nif"}
    assert set(BARS) | apart >= DETECTORS
    assert len(FRAMES) == 5


@pytest.mark.parametrize("kind", BARS)
def test_recall_and_precision_reach_their_bars(kind: str) -> None:
    there, right, wrong = measured()
    recall, precision = BARS[kind]
    assert there[kind] > 0
    assert right[kind] / there[kind] >= recall
    assert right[kind] / (right[kind] + wrong[kind]) >= precision


def test_ordinary_sentences_hardly_ever_look_sensitive() -> None:
    texts = [sample.text for sample in samples() if sample.kind is None]
    scans = [scan_value({"content": text}) for text in texts]
    hits = [f for scan in scans for f in scan.findings if f.likelihood >= Likelihood.POSSIBLE]
    assert len(texts) == 2400
    assert len(hits) <= len(texts) // 400
    assert not [f for f in hits if f.detector.startswith("secret.")]
