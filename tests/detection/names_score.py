"""Recall and precision of spans, by kind. Also a command, over a folder of labelled files.

    PYTHONPATH=appliance:tests python -m detection.names_score MODELS [FOLDER] [--from WORD] [-v]

Without FOLDER it scores the set that stands here. `--from possible` counts what a policy counts
that does not say otherwise; by default everything counts, as it does when texts are cut. A file in
FOLDER is JSON, or JSON one a line, of objects with the text as `full_text`, `text` or
`source_text`, and spans as `spans`, `entities`, `labels` or `privacy_mask`: each with `start` and
`end` (or `start_position`, `end_position`), and its type as `entity_type`, `label` or `type`.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conductor.core import Likelihood
from detection.names_set import LANGUAGES, Gold, Sample, samples

FOUND = 0.5
"""A span counts as found, or as right, when this share of its characters is covered."""
PERSON = (
    "PERSON",
    "NAME",
    "FIRSTNAME",
    "LASTNAME",
    "MIDDLENAME",
    "GIVEN_NAME",
    "GIVENNAME",
    "SURNAME",
    "PER",
)
ADDRESS = (
    "ADDRESS",
    "STREET_ADDRESS",
    "STREET",
    "LOCATION_ADDRESS",
    "STREETNAME",
    "STREETADDRESS",
    "POSTAL_ADDRESS",
)


@dataclass
class Score:
    """Counts of one kind: gold spans, found ones, found whole, predicted ones, right ones."""

    gold: int = 0
    found: int = 0
    whole: int = 0
    predicted: int = 0
    right: int = 0
    missed: list[str] = field(default_factory=list)
    false: list[str] = field(default_factory=list)

    @property
    def recall(self) -> float:
        """Of the gold spans, those found."""
        return self.found / self.gold if self.gold else 1.0

    @property
    def precision(self) -> float:
        """Of the predicted spans, those that are right."""
        return self.right / self.predicted if self.predicted else 1.0

    def __str__(self) -> str:
        whole = self.whole / self.gold if self.gold else 1.0
        return (
            f"recall {self.recall:.3f} (whole {whole:.3f}, of {self.gold}) "
            f"precision {self.precision:.3f} (of {self.predicted})"
        )


Finder = Callable[[str], Iterable[Any]]
"""From a text to things with `start`, `end`, `detector` and `likelihood`."""


def score(find: Finder, texts: Iterable[Sample], kind: str) -> Score:
    """How well `find` does on spans of one kind."""
    total = Score()
    for sample in texts:
        gold = [(g.start, g.end) for g in sample.gold if g.kind == kind]
        spans = [(s.start, s.end) for s in find(sample.text) if s.detector == kind]
        total.gold += len(gold)
        total.predicted += len(spans)
        for span in gold:
            share = _share(span, spans)
            total.found += share >= FOUND
            total.whole += share == 1
            if share < FOUND:
                total.missed.append(sample.text[slice(*span)])
        for span in spans:
            right = _share(span, gold) >= FOUND
            total.right += right
            if not right:
                total.false.append(sample.text[slice(*span)])
    return total


def _share(span: tuple[int, int], others: list[tuple[int, int]]) -> float:
    covered = sum(max(0, min(span[1], end) - max(span[0], start)) for start, end in others)
    return covered / (span[1] - span[0])


def labelled(folder: Path) -> Iterator[Sample]:
    """Samples of the files in a folder, in whichever of the usual shapes they are."""
    for path in sorted(folder.rglob("*.json*")):
        text = path.read_text(encoding="utf-8")
        try:
            rows = json.loads(text)
        except json.JSONDecodeError:
            rows = [json.loads(line) for line in text.splitlines() if line.strip()]
        for row in rows if isinstance(rows, list) else rows.get("samples", []):
            yield _sample(row)


def _sample(row: dict[str, Any]) -> Sample:
    text = _first(row, "full_text", "text", "source_text")
    spans = _first(row, "spans", "entities", "labels", "privacy_mask") or []
    gold = []
    for span in spans:
        kind = str(_first(span, "entity_type", "label", "type")).upper()
        start, end = _first(span, "start_position", "start"), _first(span, "end_position", "end")
        if kind in PERSON or kind in ADDRESS:
            gold.append(Gold(start, end, "person" if kind in PERSON else "address"))
    return Sample(str(row.get("language", "")), text, tuple(gold))


def _first(row: dict[str, Any], *keys: str) -> Any:
    return next((row[key] for key in keys if key in row), None)


def counted(find: Finder, least: Likelihood) -> Finder:
    """`find` without what is less likely than `least`."""
    return lambda text: [span for span in find(text) if span.likelihood >= least]


def main() -> None:
    """Print a line a language and kind; misses and false alarms after it with `-v`."""
    from conductor.detect.names import NameFinder

    parser = ArgumentParser(description="Recall and precision of spans, by kind.")
    parser.add_argument("models", type=Path)
    parser.add_argument("folder", type=Path, nargs="?")
    words = [likelihood.word for likelihood in Likelihood]
    parser.add_argument("--from", dest="least", choices=words, default=words[0])
    parser.add_argument("-v", dest="verbose", action="store_true")
    given = parser.parse_args()
    find = counted(NameFinder.open(given.models).spans, Likelihood.of(given.least))
    if given.folder:
        sets = {"folder": list(labelled(given.folder))}
    else:
        sets = {name: list(samples(name)) for name in LANGUAGES}
        sets |= {f"{name} lower": list(samples(name, lower=True)) for name in LANGUAGES}
    for name, texts in sets.items():
        for kind in ("person", "address"):
            result = score(find, texts, kind)
            print(f"{name:9} {kind:8} {result}")
            if given.verbose:
                print("   missed", Counter(result.missed).most_common(9))
                print("   false ", Counter(result.false).most_common(9))


if __name__ == "__main__":
    main()
