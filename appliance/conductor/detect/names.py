"""Names of persons and postal addresses, in texts that are written in Latin letters.

A small tagger (Rampart, National Design Studio, CC BY 4.0; see NOTICE) reads a text in windows and
says of every piece what it could be; pieces become words, words become spans. Its other kinds
(phone, e-mail, bank account, ...) are left to the rules, which have checksums, and a town on its
own is no address. Not found: organisations, and names in other scripts, which is said of the text.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import secrets
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from conductor.detect.namesgraph import MAX_TOKENS, Floats, Network
from conductor.detect.nameswindows import foreign, windows
from conductor.detect.nameswords import ADDRESS, KINDS, PERSON, Word, merged, spans_of
from conductor.detect.spans import Span
from conductor.errors import StartError

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

GRAPH, TOKENIZER, CONFIG = (
    "rampart-names-q4.onnx",
    "rampart-names-tokenizer.json",
    "rampart-names-config.json",
)
"""The files under the names that the model catalogue gives them."""
LIMIT = 0.2
"""A word may be part of a name from this probability on: of a public set's persons 0.4 finds 80 in
100, 0.2 finds 84, 0.15 still 84. The texts of tests/detection were looked at too, so that they do
not confirm it."""

_CACHED = 4096
"""Windows whose words are kept: some megabytes at most. Histories repeat, word for word."""
_LABELS = tuple(KINDS)
_LETTERS = re.compile(r"[^\W\d_]{2}")


@dataclass(frozen=True)
class Reading:
    """What a text holds. Not `complete`: some of it is in another script, or time was up."""

    spans: tuple[Span, ...]
    complete: bool


@dataclass(frozen=True)
class Tagged:
    """The words of a window that are part of a name. Not `whole`: it had too many pieces."""

    words: tuple[Word, ...]
    whole: bool


class NameFinder:
    """Finds persons and addresses. One caller at a time; the windows of a text are read side by
    side, since a thread each is faster than several threads on one."""

    def __init__(
        self, network: Network, tokenizer: Tokenizer, labels: tuple[str, ...], threads: int = 1
    ) -> None:
        self._network = network
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="names")
        self._tokenizer = tokenizer
        self._sums = np.array([[own == label for label in _LABELS] for own in labels], np.float32)
        self._first, self._last = (_mark(tokenizer, name) for name in ("[CLS]", "[SEP]"))
        self._key = secrets.token_bytes(32)
        self._known: OrderedDict[bytes, Tagged] = OrderedDict()

    @classmethod
    def open(cls, folder: Path, *, threads: int = 2) -> NameFinder:
        """Read the files in the models directory. Raises `StartError` if one cannot be used."""
        try:
            labels = _labels(folder / CONFIG)
            network = Network.open(folder / GRAPH, threads=1)
            finder = cls(network, _tokenizer(folder / TOKENIZER), labels, threads)
        except OSError:
            raise StartError(
                "rampart-names is not here: run 'conductor models pull rampart-names'"
            ) from None
        except Exception as error:  # noqa: BLE001  both libraries raise bare or private classes
            kind = type(error).__name__
            raise StartError(f"the tagger of names cannot be loaded ({kind})") from None
        _return_freed_memory()
        return finder

    def spans(self, text: str) -> list[Span]:
        """Spans of persons and addresses in order, as far as the text could be read."""
        return list(self.read(text).spans)

    def read(self, text: str, deadline: float | None = None) -> Reading:
        """Spans, and whether the whole text was read; windows stop at `deadline` (monotonic)."""
        # Half a surrogate pair is no character; one that stands for it keeps offsets right.
        text = text.encode("utf-8", "replace").decode()
        complete, words = not foreign(text), list[Word]()
        places = list(windows(text))
        for (start, _), tagged in zip(
            places, self._tagged([text[start:end] for start, end in places], deadline), strict=True
        ):
            if tagged is None:
                complete = False
                continue
            complete = complete and tagged.whole
            words += [word.moved(start) for word in tagged.words]
        return Reading(tuple(spans_of(text, merged(words))), complete)

    def forget(self) -> None:
        """Drop what is remembered of earlier texts."""
        self._known.clear()

    def _tagged(self, texts: list[str], deadline: float | None) -> list[Tagged | None]:
        """What is in each window, remembered under a keyed hash of it and never with its text; None
        for one whose turn came too late."""
        keys = [hashlib.blake2b(t.encode(), digest_size=16, key=self._key).digest() for t in texts]
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        # The longest first, so that no thread is left with one at the end.
        waiting = sorted(new, key=lambda key: -len(new[key]))
        found = self._threads.map(lambda key: self._in_time(new[key], deadline), waiting)
        tagged = dict(zip(waiting, found, strict=True))
        tagged.update((key, self._known[key]) for key in keys if key not in new)
        for key in keys:
            self._remember(key, tagged[key])
        return [tagged[key] for key in keys]

    def _remember(self, key: bytes, tagged: Tagged | None) -> None:
        if tagged is None:
            return
        self._known[key] = tagged
        self._known.move_to_end(key)
        if len(self._known) > _CACHED:
            self._known.popitem(last=False)

    def _in_time(self, window: str, deadline: float | None) -> Tagged | None:
        late = deadline is not None and time.monotonic() >= deadline
        return None if late else self._tag(window)

    def _tag(self, window: str) -> Tagged:
        if not _LETTERS.search(window):
            return Tagged((), whole=True)
        encoding = self._tokenizer.encode(window, add_special_tokens=False)
        ids = encoding.ids[: MAX_TOKENS - 2]
        if not ids:
            return Tagged((), whole=True)
        logits = self._network.logits([self._first, *ids, self._last])[1:-1]
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        odds /= odds.sum(axis=1, keepdims=True)
        return Tagged(self._of_pieces(window, encoding, odds), len(ids) == len(encoding.ids))

    def _of_pieces(self, window: str, encoding: Encoding, odds: Floats) -> tuple[Word, ...]:
        """The words among the pieces that are part of a name; a word takes its best piece."""
        begins = np.flatnonzero(np.diff(np.array(encoding.word_ids[: len(odds)]), prepend=-1))
        best = np.maximum.reduceat(odds @ self._sums, begins, axis=0)
        found = []
        for row in np.flatnonzero(best.max(axis=1) > LIMIT / len(KINDS)):
            label, probability = _choice(best[row])
            if probability >= LIMIT:
                last = begins[row + 1] - 1 if row + 1 < len(begins) else len(odds) - 1
                start, end = encoding.offsets[begins[row]][0], encoding.offsets[last][1]
                if not foreign(window[start:end]):  # what it says there is chance
                    found.append(Word(start, end, label, probability))
        return tuple(found)


def _choice(row: Floats) -> tuple[str, float]:
    """The kind that a word's labels add up to most, by its best label; and that sum."""
    totals = dict.fromkeys((PERSON, ADDRESS), 0.0)
    for value, label in zip(row, _LABELS, strict=True):
        totals[KINDS[label]] += float(value)
    kind = max(totals, key=totals.__getitem__)
    inside = [n for n, label in enumerate(_LABELS) if KINDS[label] == kind]
    return _LABELS[max(inside, key=row.__getitem__)], min(1.0, totals[kind])


def _return_freed_memory() -> None:
    """Rewriting the weights leaves tens of megabytes that are free and still ours."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


def _labels(path: Path) -> tuple[str, ...]:
    """The tagger's labels by number, without the mark of where one begins."""
    names = json.loads(path.read_bytes())["id2label"]
    return tuple(names[str(n)].partition("-")[2] for n in range(len(names)))


def _mark(tokenizer: Tokenizer, name: str) -> int:
    number = tokenizer.token_to_id(name)
    if number is None:
        raise ValueError("a tokenizer of another kind")
    return int(number)


def _tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_buffer(path.read_bytes())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # a text that spells out a mark is only a text
    return tokenizer
