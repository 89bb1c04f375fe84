"""What answers were made from, remembered for when their text comes back from a client.

An answer that was made from sensitive data may show nothing that a detector knows. The client
sends it back in its next request, as history or as a text to work on, and would so have washed its
label off. Here the appliance knows it again (`fingerprints.py` says how well), and the request is
labelled as the answer was.

Only hashes are kept, no text, in memory alone and with a bound: two generations, of which the older
is dropped when the younger is full, and what was found again becomes young. The last half of
`max_fingerprints` is so always there. Labels are kept by name and read under the policy of the day;
a name that it does not have any more counts as the top.

Stock phrases would label everything. Nothing shorter than `fingerprints.LENGTH` letters is ever
found, and what the appliance wrote by itself for data without any such label *before* it did so for
labelled data is common knowledge (`learn`): it says nothing of a secret. Never so what a client
sent: whoever could teach the store that a text is harmless could wash it. For the same reason the
order counts, and runs that the answer copied from the request are left out. In doubt the label
rises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from conductor.flow import fingerprints
from conductor.labels import Label, Lattice, join_all

MAX_FINGERPRINTS = 400_000
"""About 40 MB. One for three letters of an answer: the last 0.6 to 1.2 MB of answers."""
MAX_LEARNED_LETTERS = 16 * 1024
"""Nothing is learned from an exchange that is longer: it would hold up others for milliseconds."""
_MAX_SHARED = 4096

V = TypeVar("V")


def own_words(answer: str, shown: Iterable[str]) -> set[int]:
    """Fingerprints of what an answer says by itself, and not after the texts `shown`. Empty for a
    long exchange, see `MAX_LEARNED_LETTERS`."""
    texts = [*shown]
    if len(answer) + sum(map(len, texts)) > 4 * MAX_LEARNED_LETTERS:
        return set()  # said before the letters are told from the rest: that takes its time as well
    told = b"".join(map(fingerprints.letters, texts))
    own = fingerprints.letters(answer)
    if len(told) + len(own) > MAX_LEARNED_LETTERS:
        return set()
    return fingerprints.unlike(own, told)


class ArtifactStore:
    """Remembers answers with their labels. Safe to use from several threads."""

    def __init__(self, max_fingerprints: int = MAX_FINGERPRINTS) -> None:
        self._lock = Lock()
        self._labelled: _Recent[frozenset[str]] = _Recent(max_fingerprints)
        self._common: _Recent[None] = _Recent(max_fingerprints)
        self._sets: dict[frozenset[str], frozenset[str]] = {}

    def remember(self, text: str, label: str) -> None:
        """Keep an answer that leaves the appliance with a label above that of an unlabelled text.
        `label` is its text form. An answer of fewer than `fingerprints.LENGTH` letters is too
        common to be known again, and is not kept."""
        found = fingerprints.kept(fingerprints.letters(text))
        with self._lock:
            for one in found:
                if not self._common.has(one):
                    before = self._labelled.get(one) or frozenset()
                    self._labelled.put(one, self._shared(before | {label}))

    def learn(self, answer: str, shown: Iterable[str]) -> None:
        """Take in an answer that was made from data without any label above that of an unlabelled
        text: what it says by itself, and not after the texts `shown`, is common."""
        self.know(own_words(answer, shown))

    def know(self, found: Iterable[int]) -> None:
        """Take in what is common, as `own_words` has found it."""
        with self._lock:
            for one in found:
                if not self._labelled.has(one):
                    self._common.put(one, None)

    def label_of(self, texts: Sequence[str], lattice: Lattice) -> Label | None:
        """The join of the labels of all answers that the texts have a long run from, be it over
        the seam of two neighbours; None if there are none. Takes some 20 microseconds for 2 kB,
        40 ms for 1 MB."""
        parts = [fingerprints.letters(text) for text in texts]
        asked = fingerprints.looked_up(b"".join(parts))
        for part in parts:
            if len(part) < fingerprints.ALIGNED:
                asked += fingerprints.looked_up(part)
        with self._lock:
            names = frozenset[str]().union(*self._labelled.all_of(asked))
        return join_all(_read(name, lattice) for name in names) if names else None

    def _shared(self, labels: frozenset[str]) -> frozenset[str]:
        """One object for equal sets: there are few, and many places point to them. Should somebody
        make many on purpose, they are kept apart."""
        if len(self._sets) >= _MAX_SHARED:
            self._sets.clear()
        return self._sets.setdefault(labels, labels)


class _Recent(Generic[V]):
    """A map that forgets: at most `most` entries, of which the last half is certain."""

    def __init__(self, most: int) -> None:
        self._half = max(1, most // 2)
        self._young: dict[int, V] = {}
        self._old: dict[int, V] = {}

    def has(self, key: int) -> bool:
        return key in self._young or key in self._old

    def get(self, key: int) -> V | None:
        return self._young.get(key, self._old.get(key))

    def put(self, key: int, value: V) -> None:
        if len(self._young) >= self._half and key not in self._young:
            self._old, self._young = self._young, {}
        self._young[key] = value

    def all_of(self, keys: Sequence[int]) -> set[V]:
        """The values of all keys that are there, which become young."""
        if self._young.keys().isdisjoint(keys) and self._old.keys().isdisjoint(keys):
            return set()
        found = {key: value for key in keys if (value := self.get(key)) is not None}
        for key, value in found.items():
            self.put(key, value)
        return set(found.values())


def _read(name: str, lattice: Lattice) -> Label:
    try:
        return lattice.parse(name)
    except ValueError:
        return lattice.top
