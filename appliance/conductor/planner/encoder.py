"""The frozen sentence encoder: a text in, 384 numbers of length one out.

all-MiniLM-L6-v2 (Reimers and Gurevych 2019, arXiv:1908.10084) as an ONNX graph with int8 weights;
like its makers' own pipeline, the vector is the mean of the token states, scaled to length one.

Training caches what `embed` returns and serving calls the same `embed`, so both see the same bits:
a text is always run alone, never in a padded batch, which would gain little on a CPU anyway
(tests/bench/bench_encode.py). Left out: the token states, and what lies between a long text's ends.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conductor.errors import StartError
from conductor.planner.encodergraph import rows_first
from conductor.planner.manifest import EncoderId

if TYPE_CHECKING:
    from onnxruntime import InferenceSession
    from tokenizers import Tokenizer

WIDTH = 384
"""Length of a vector."""
MAX_TOKENS = 192
"""Tokens of a text that are read, the two marks around them included; the model's makers allow 256.
Time grows with them: 192 is what keeps a long question near 25 ms on two threads
(tests/bench/bench_encode.py), and of the recorded questions one in eleven is longer."""
ALIKE = 0.85
"""Two answers in prose whose cosine is at least this count as saying the same. Of the pairs in
tests/support/likeness.py it takes 9 of the 12 that agree and none of the 12 that differ, 0.80 would
take 11 and 4. A missing "not" it does not see."""

_END_TOKENS = (MAX_TOKENS - 2) // 2
"""Tokens of each end of a longer text: questions put their point first or last."""
_END_CHARACTERS = 2048
"""What is tokenised of each end. A token is seldom longer than ten characters, and the time stays
the same for a text of any length."""


class Encoder:
    """A process loads one. Any thread may call it: a process with an event loop does so through an
    executor of one thread, and the loop goes on, because the interpreter lock is free meanwhile."""

    def __init__(
        self, session: InferenceSession, tokenizer: Tokenizer, identity: EncoderId
    ) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._first, self._last = _mark(tokenizer, "[CLS]"), _mark(tokenizer, "[SEP]")
        self.id = identity
        """What both files are, by sha256: a bundle names it."""

    @classmethod
    def load(
        cls, onnx: Path, tokenizer: Path, *, threads: int = 2, expected: EncoderId | None = None
    ) -> Encoder:
        """Read both files. Raises `StartError` if one cannot be used or is not `expected`."""
        graph, words = _read(onnx), _read(tokenizer)
        found = EncoderId(_sha256(graph), _sha256(words))
        if expected is not None and found != expected:
            raise StartError("the sentence encoder's files are not those that were asked for")
        try:
            graph = rows_first(graph)
            encoder = cls(_session(graph, threads), _tokenizer(words), found)
        except StartError:
            raise
        except Exception as error:  # noqa: BLE001  both libraries raise bare or private classes
            kind = type(error).__name__
            raise StartError(f"the sentence encoder cannot be loaded ({kind})") from None
        _return_freed_memory()
        return encoder

    def embed(self, text: str) -> NDArray[np.float32]:
        """The vector of any text, [WIDTH], of length one."""
        ids = np.array([self.tokens(text)], dtype=np.int64)
        (states,) = self._session.run(
            None,
            {
                "input_ids": ids,
                "attention_mask": np.ones_like(ids),
                "token_type_ids": np.zeros_like(ids),
            },
        )
        mean = states[0].mean(axis=0, dtype=np.float32)
        return np.asarray(mean / np.linalg.norm(mean), dtype=np.float32)

    def embed_many(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors of `texts`, [N, WIDTH]: the very ones that `embed` gives."""
        vectors = np.empty((len(texts), WIDTH), dtype=np.float32)
        for row, text in enumerate(texts):
            vectors[row] = self.embed(text)
        return vectors

    def similar(self, one: str, other: str) -> float:
        """Cosine of two texts, -1 to 1; the same whichever comes first."""
        return float(self.embed(one) @ self.embed(other))

    def alike(self, one: str, other: str) -> bool:
        """Whether two answers in prose say the same, as far as `ALIKE` can tell."""
        return self.similar(one, other) >= ALIKE

    def tokens(self, text: str) -> list[int]:
        """The token numbers that are read of `text`: 2 to `MAX_TOKENS`."""
        if len(text) <= 2 * _END_CHARACTERS:
            ids = self._ids(text)
            if len(ids) > 2 * _END_TOKENS:
                ids = ids[:_END_TOKENS] + ids[-_END_TOKENS:]
        else:
            head, tail = text[:_END_CHARACTERS], text[-_END_CHARACTERS:]
            ids = self._ids(head)[:_END_TOKENS] + self._ids(tail)[-_END_TOKENS:]
        return [self._first, *ids, self._last]

    def _ids(self, text: str) -> list[int]:
        # Half a surrogate pair is no character; the tokenizer itself drops NUL and its like.
        whole = text.encode("utf-8", "ignore").decode()
        return list(self._tokenizer.encode(whole, add_special_tokens=False).ids)


def _session(graph: bytes, threads: int) -> InferenceSession:
    from onnxruntime import ExecutionMode, InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # what is wrong is raised; its log would go to our stderr
    # Threads that spin while they wait would take whole cores from a machine that is idle.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def _tokenizer(words: bytes) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(words)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    # A text that spells out the name of a mark is still only a text.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _mark(tokenizer: Tokenizer, name: str) -> int:
    number = tokenizer.token_to_id(name)
    if number is None:
        raise StartError("the sentence encoder's tokenizer is of another kind")
    return int(number)


def _read(path: Path) -> bytes:
    """Once: what is used are the bytes whose hash is taken."""
    try:
        return path.read_bytes()
    except OSError:
        raise StartError(f"{path.name} cannot be read: run 'conductor models pull'") from None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _return_freed_memory() -> None:
    """Unfolding the weights leaves 60 MB that are free and still ours; glibc can give them back."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)
