"""Hardly a secret is found where none is: at most one in 2,000 lines of prose and of code.

The corpus is the repository's own sources and guides, and sentences in five languages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from conductor.core import Likelihood
from conductor.detect.scan import scan_value
from detection.labelled import samples
from support.ordinary_text import EVERYTHING

ROOT = Path(__file__).parents[2]
TREES = ("appliance/conductor/**/*.py", "build/**/*.py", "kernels/**/*.py", "docs/**/*.md")
OF_SHAPES = frozenset({"tokens.py", "secrets.py"})
"""Files that spell out what secrets look like."""
LINES_A_HIT = 2_000


def corpus() -> Iterator[str]:
    for tree in TREES:
        for path in sorted(ROOT.glob(tree)):
            if path.name not in OF_SHAPES:
                yield path.read_text("utf-8")
    yield EVERYTHING
    yield "\n".join(sample.text for sample in samples() if sample.kind is None)


def secrets_in(text: str) -> int:
    findings = scan_value({"messages": [{"role": "user", "content": text}]}).findings
    told = (f for f in findings if f.likelihood >= Likelihood.POSSIBLE)
    return sum(f.count for f in told if f.detector.startswith("secret."))


def test_at_most_one_false_secret_in_two_thousand_lines() -> None:
    texts = list(corpus())
    lines = sum(text.count("\n") + 1 for text in texts)
    assert lines > 30_000
    # The demo's own made-up keys are among what is found, and count.
    assert sum(map(secrets_in, texts)) <= lines // LINES_A_HIT
