"""Every credential format of the table is found: drawn at random, in a sentence and in a file."""

from __future__ import annotations

import random

import pytest

from conductor.detect.profile import DEFAULT_PROFILE
from conductor.detect.scan import scan_spans, scan_value
from conductor.detect.tokens import BOUNDED, INNER, TOKENS
from detection.fromshape import text_of

SHAPES = (*TOKENS, *BOUNDED, *(whole for _, whole in INNER))
EACH = 5


def drawn(shape: str) -> list[str]:
    source = random.Random(shape)
    return [text_of(shape, source) for _ in range(EACH)]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_credential_of_each_format_is_found(shape: str) -> None:
    for token in drawn(shape):
        for text in (f"we use {token} here", f'{{"key": "{token}"}}', f"KEY={token}\n"):
            kinds = {f.detector for f in scan_value({"content": text}).findings}
            assert kinds & {"secret.token", "secret.aws", "secret.generic"}, shape


@pytest.mark.parametrize("shape", SHAPES)
def test_a_credential_is_cut_out_whole(shape: str) -> None:
    for token in drawn(shape):
        text = f"we use {token} here"
        spans = scan_spans([text], frozenset({"secret"}), DEFAULT_PROFILE).per_text[0]
        assert [text[span.start : span.end].strip("?&") for span in spans] == [token.strip("?&")]
