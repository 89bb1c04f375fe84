"""Persons and addresses in what was read: how texts are put before the model, and what it found.

Neighbouring short texts are read as one, because each reading has its price; long ones are read
alone, so that the same message in the next request is remembered.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from conductor.core import Likelihood
from conductor.detect.canonical import BREAK
from conductor.detect.spans import Span

if TYPE_CHECKING:
    from conductor.detect.views import Views

_SHORT = 120
_TOGETHER = 480
"""Characters: the model's window."""


class Reading(Protocol):
    """What a text holds; not `complete` when some of it is in another script, or time was up."""

    @property
    def spans(self) -> tuple[Span, ...]: ...
    @property
    def complete(self) -> bool: ...


class Finder(Protocol):
    """`names.NameFinder`, which only a scanning process imports: it loads half a library."""

    def read(self, text: str, deadline: float | None = None) -> Reading:
        """The names in a text, as far as it could be read before `deadline` (monotonic)."""


class Names:
    """The model and until when it may read (`time.monotonic`; None: as long as it takes)."""

    def __init__(self, finder: Finder, deadline: float | None = None) -> None:
        self._finder = finder
        self._deadline = deadline

    def read(self, text: str) -> tuple[tuple[Span, ...], str | None]:
        """The names in a text, and why they are not all; None if they are."""
        reading = self._finder.read(text, self._deadline)
        if reading.complete:
            return reading.spans, None
        late = self._deadline is not None and time.monotonic() >= self._deadline
        return reading.spans, "names-timeout" if late else "names-script"


def seek_names(views: Views, documents: Iterable[str], names: Names | None) -> None:
    """Add the names in `documents` to the findings of `views`."""
    if names is None:
        views.unscanned.add("names-missing")
        return
    found: Counter[tuple[str, Likelihood]] = Counter()
    for document in documents:
        for text in _texts(document):
            spans, reason = names.read(text)
            found.update((span.detector, span.likelihood) for span in spans)
            if reason:
                views.unscanned.add(reason)
            if reason == "names-timeout":
                break
    for (detector, likelihood), count in found.items():
        views.note(detector, likelihood, count, "raw")


def _texts(document: str) -> Iterator[str]:
    """The texts of a document; short ones, as far as they follow one another, a line each."""
    together: list[str] = []
    size = 0
    for text in filter(None, document.split(BREAK)):
        if len(text) > _SHORT:
            yield text
            continue
        if size + len(text) > _TOGETHER:
            yield "\n".join(together)
            together, size = [], 0
        together.append(text)
        size += len(text) + 1
    if together:
        yield "\n".join(together)
