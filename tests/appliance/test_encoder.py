"""The sentence encoder: the same bits for a text wherever it is run, and a vector for any text."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.errors import StartError
from conductor.planner.encoder import ALIKE, MAX_TOKENS, WIDTH, Encoder
from conductor.planner.encoderfiles import known_encoders, load_encoder
from conductor.planner.manifest import EncoderId
from conductor.workers.catalogue import load_catalogue
from conductor.workers.fetch import locate
from support.likeness import DIFFERENT, SAME

ROOT = Path(__file__).parents[2]
MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
END = (MAX_TOKENS - 2) // 2


def files() -> tuple[Path, Path]:
    catalogue = load_catalogue()
    onnx = locate(MODELS, catalogue["minilm-l6"])
    tokenizer = locate(MODELS, catalogue["minilm-l6-tokenizer"])
    if onnx is None or tokenizer is None:
        pytest.skip("run 'conductor models pull minilm-l6' first")
    return onnx, tokenizer


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    files()
    yield load_encoder(MODELS)


def one_number_a_word(count: int) -> str:
    """`count` words that are one token each, all of them different from their neighbours."""
    return " ".join(("sea", "sun", "salt", "sand")[i % 4] for i in range(count))


TEXTS = (
    "How many apples are left?",
    "",
    "def f(x):\n    return x + 1",
    one_number_a_word(90),
    one_number_a_word(400),
    "Größe und Gewicht, 你好, مرحبا 🙂",
)


# -- one text, one vector -------------------------------------------------------------------------


@pytest.mark.model
def test_a_text_has_a_vector_of_length_one(encoder):
    for text in TEXTS:
        vector = encoder.embed(text)
        assert vector.shape == (WIDTH,) and vector.dtype == np.float32
        assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5


@pytest.mark.model
def test_the_vectors_are_those_of_the_published_pipeline(encoder):
    """Cosines that sentence-transformers gives with the float32 weights, to two places."""
    vectors = encoder.embed_many(
        ["That is a happy person", "That is a happy dog", "Today is a sunny day"]
    )
    assert vectors[0] @ vectors[1] == pytest.approx(0.695, abs=0.02)
    assert vectors[0] @ vectors[2] == pytest.approx(0.257, abs=0.02)


@pytest.mark.model
def test_many_texts_get_the_very_vectors_that_each_gets_alone(encoder):
    """Training caches the ones, serving computes the others."""
    together = encoder.embed_many(TEXTS)
    assert together.tobytes() == b"".join(encoder.embed(text).tobytes() for text in TEXTS)
    backwards = encoder.embed_many(TEXTS[::-1])
    assert together.tobytes() == backwards[::-1].tobytes()
    assert encoder.embed_many([]).shape == (0, WIDTH)


@pytest.mark.model
def test_the_number_of_threads_changes_no_bit(encoder):
    alone = Encoder.load(*files(), threads=1)
    assert alone.embed_many(TEXTS).tobytes() == encoder.embed_many(TEXTS).tobytes()


@pytest.mark.model
def test_calls_from_several_threads_do_not_disturb_each_other(encoder):
    expected = [encoder.embed(text).tobytes() for text in TEXTS]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            found = list(pool.map(lambda text: encoder.embed(text).tobytes(), TEXTS))
            assert found == expected


@pytest.mark.model
async def test_the_event_loop_goes_on_while_a_text_is_encoded(encoder):
    """The interpreter lock is free: a loop that could not run would not count at all."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.create_task(count())
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as worker:
        for _ in range(5):
            await loop.run_in_executor(worker, encoder.embed, one_number_a_word(180))
    counting.cancel()
    assert turns > 100


# -- how much of it is read -----------------------------------------------------------------------


@pytest.mark.model
def test_a_text_that_fits_is_read_whole_and_a_longer_one_at_both_ends(encoder):
    words = one_number_a_word(4 * MAX_TOKENS).split()
    exact = encoder.tokens(" ".join(words[: MAX_TOKENS - 2]))
    assert len(exact) == MAX_TOKENS
    longer = encoder.tokens(" ".join(words[: MAX_TOKENS - 1]))
    assert len(longer) == MAX_TOKENS
    head, tail = encoder.tokens(" ".join(words[:END])), encoder.tokens(" ".join(words[-END:]))
    assert encoder.tokens(" ".join(words)) == [*head[:-1], *tail[1:]]


@pytest.mark.model
@pytest.mark.parametrize("filler", ["sea ", "x", "你", "\n", "\u0301", "🙂", "-", "\ud800"])
def test_a_text_of_200_000_characters_is_read_at_both_ends_only(encoder, filler):
    text = "How many apples? " + filler * (200_000 // len(filler)) + " Answer in one word."
    ids = encoder.tokens(text)
    assert 2 < len(ids) <= MAX_TOKENS
    assert ids[:5] == encoder.tokens("How many apples?")[:5]
    assert ids[-6:] == encoder.tokens("Answer in one word.")[-6:]
    middle = text[:100_000] + "nobody reads this" + text[100_000:]
    assert encoder.embed(middle).tobytes() == encoder.embed(text).tobytes()


@pytest.mark.model
@pytest.mark.parametrize("nothing", ["", " ", "\0", "\0\0\n", "\ud800", "\u200b\u200d"])
def test_what_is_no_text_has_the_vector_of_an_empty_one(encoder, nothing):
    assert encoder.tokens(nothing) == encoder.tokens("")
    assert encoder.embed(nothing).tobytes() == encoder.embed("").tobytes()


@pytest.mark.model
def test_half_a_surrogate_pair_or_a_control_character_hides_no_word(encoder):
    assert encoder.tokens("ap\0ple \ud800pie") == encoder.tokens("apple pie")


@pytest.mark.model
def test_a_text_that_spells_out_a_mark_is_only_a_text(encoder):
    first, last = encoder.tokens("")
    for mark in ("[SEP]", "[CLS]", "[PAD]", "[MASK]", "[UNK]"):
        ids = encoder.tokens(f"one {mark} two")
        assert len(ids) > 5
        assert not {first, last, 0, 100, 103} & set(ids[1:-1])


@pytest.mark.model
@given(st.text(st.characters(), max_size=60))
@settings(max_examples=50, deadline=None)
def test_any_text_has_a_finite_vector(encoder, text):
    assert np.isfinite(encoder.embed(text)).all()


# -- likeness -------------------------------------------------------------------------------------


@pytest.mark.model
def test_answers_that_are_alike_agree(encoder):
    """The table that the threshold was chosen on; its docstring says what it takes."""
    assert sum(encoder.alike(one, other) for one, other in SAME) == 9
    assert not any(encoder.alike(one, other) for one, other in DIFFERENT)
    assert [encoder.similar(*pair) >= ALIKE for pair in SAME] == [
        encoder.alike(other, one) for one, other in SAME
    ]


# -- its files ------------------------------------------------------------------------------------


def test_the_catalogue_s_encoder_is_known_by_both_files():
    catalogue = load_catalogue()
    (identity,) = known_encoders(catalogue)
    assert identity == EncoderId(
        catalogue["minilm-l6"].sha256, catalogue["minilm-l6-tokenizer"].sha256
    )


@pytest.mark.model
def test_an_encoder_knows_which_files_it_is(encoder):
    assert encoder.id in known_encoders(load_catalogue())
    assert Encoder.load(*files(), expected=encoder.id).id == encoder.id


@pytest.mark.parametrize("which", ["onnx", "tokenizer"])
def test_an_encoder_that_the_catalogue_does_not_hold_is_refused(tmp_path, which):
    (known,) = known_encoders(load_catalogue())
    with pytest.raises(StartError, match="does not hold"):
        load_encoder(tmp_path, replace(known, **{which: "0" * 64}))


def test_missing_files_are_answered_with_the_command_that_gets_them(tmp_path):
    with pytest.raises(StartError, match="conductor models pull minilm-l6"):
        load_encoder(tmp_path)
    with pytest.raises(StartError, match="conductor models pull"):
        Encoder.load(tmp_path / "graph.onnx", tmp_path / "tokenizer.json")


@pytest.mark.model
def test_a_damaged_file_of_the_right_size_is_refused(tmp_path):
    for path in files():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    spoilt = bytearray((tmp_path / files()[0].name).read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    (tmp_path / files()[0].name).write_bytes(spoilt)
    with pytest.raises(StartError, match="not those that were asked for"):
        load_encoder(tmp_path)


@pytest.mark.model
@pytest.mark.parametrize("data", [b"", b"{}", b"junk", b'{"version": "1.0", "model": {}}'])
def test_files_that_are_something_else_are_refused_without_a_foreign_word(tmp_path, capfd, data):
    onnx, tokenizer = files()
    (tmp_path / "x").write_bytes(data)
    for pair in ((tmp_path / "x", tokenizer), (onnx, tmp_path / "x"), (tokenizer, onnx)):
        with pytest.raises(StartError, match="cannot be loaded"):
            Encoder.load(*pair)
    assert capfd.readouterr() == ("", "")


def test_loading_the_modules_loads_no_runtime():
    """`conductor models` and others may import them; only an encoder needs ONNX Runtime."""
    code = (
        "import sys, conductor.planner.encoderfiles\n"
        "print(sorted({'onnxruntime', 'tokenizers', 'torch'} & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "appliance")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.strip() == "[]"
