"""Prompt vectors: what the network is told of a question, computed once and kept.

A vector is the sentence encoder's, then the lexical features, as the daemon computes them. Encoding
takes 10 to 20 ms a question, so vectors are kept in a file, under the sha256 of the question. The
file belongs to one encoder and one list of features; with others it is made anew.
"""

from __future__ import annotations

import hashlib
import io
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from conductor.planner.lexical import FEATURES, lexical
from conductor.planner.manifest import EncoderId
from conductor_build.files import replace_file

CACHE = "vectors.npz"
SAVE_EVERY_S = 20.0

Floats = NDArray[np.float32]


class Reader(Protocol):
    """The sentence encoder, or what stands in for it in a test."""

    @property
    def id(self) -> EncoderId:
        """What its files are."""

    def embed(self, text: str) -> Floats:
        """A vector of length one."""


def prompt_vectors(
    questions: Sequence[str], reader: Reader, cache: Path, report: Callable[[int, int], None]
) -> Floats:
    """Vectors [P, F] of the questions, float32.

    `cache` is a file that is read if it fits, and brought up to date, also while encoding goes on.
    `report` is told how many of the vectors that were missing are done, and may raise to stop.
    """
    known = _read(cache, reader)
    keys = [_key(question) for question in questions]
    missing = {key: question for key, question in zip(keys, questions, strict=True)
               if key not in known}  # fmt: skip
    saved = time.monotonic()
    try:
        for done, (key, question) in enumerate(missing.items()):
            report(done, len(missing))
            known[key] = np.concatenate([reader.embed(question), lexical(question)])
            if time.monotonic() - saved > SAVE_EVERY_S:
                _write(cache, reader, known)
                saved = time.monotonic()
    finally:
        if missing:
            _write(cache, reader, known)
    report(len(missing), len(missing))
    return np.stack([known[key] for key in keys]).astype(np.float32)


def _key(question: str) -> str:
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()


def _made_by(reader: Reader) -> str:
    return " ".join((reader.id.onnx, reader.id.tokenizer, *FEATURES))


def _read(cache: Path, reader: Reader) -> dict[str, Floats]:
    """Nothing when there is no file, it is damaged, or of another encoder: it is a cache."""
    try:
        # numpy leaves a file open that it was given by name and cannot read.
        with cache.open("rb") as file, np.load(file, allow_pickle=False) as parts:
            if str(parts["made_by"]) != _made_by(reader):
                return {}
            keys, vectors = parts["keys"].tolist(), parts["vectors"]
            return dict(zip(keys, vectors, strict=True)) if np.isfinite(vectors).all() else {}
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return {}


def _write(cache: Path, reader: Reader, known: dict[str, Floats]) -> None:
    if not known:
        return
    buffer = io.BytesIO()
    keys = sorted(known)
    np.savez(
        buffer,
        made_by=np.array(_made_by(reader)),
        keys=np.array(keys),
        vectors=np.stack([known[key] for key in keys]).astype(np.float32),
    )
    replace_file(cache, buffer.getvalue())
