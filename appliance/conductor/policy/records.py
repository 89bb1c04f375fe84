"""Recorded decisions, read back from the audit log: what each was made from, and what it was.

Only features are recorded (label, detectors, verdicts), never a word of a prompt. Read robustly,
since records of older versions hold less: where what was declared is not told, the recorded label
stands in for it. What had no room in a record is put together with it; where a part is missing,
the decision cannot be made anew from what is left, and is counted instead. The log may be in use:
an unfinished line at its end is no record yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from conductor.audit.record import MAX_RECORD_BYTES
from conductor.audit.segments import segments
from conductor.audit.whole import Parts
from conductor.core import Finding, Likelihood, Scan
from conductor.policy.rulings import Ruling, recorded_rulings

_EVENT, _PART, _OF = b'"event":"decision"', b'"event":"more"', b'"of":"decision"'
_LIKELIHOODS = {likelihood.word: likelihood for likelihood in Likelihood}


@dataclass(frozen=True)
class Features:
    """What a decision was made from. `complete` tells that the record said what was declared, so
    that its label can be worked out anew; otherwise `label` is all there is."""

    key: str
    label: str
    declared: str | None
    findings: tuple[Finding, ...]
    unscanned: tuple[str, ...]
    complete: bool

    @property
    def scan(self) -> Scan:
        """The scan, but for its size."""
        return Scan(self.findings, 0, self.unscanned)


@dataclass(frozen=True)
class Recorded:
    """One decision. `rulings` are by worker id."""

    ts: str
    request_id: str
    features: Features
    rulings: Mapping[str, Ruling]


class DecisionLog:
    """The decisions recorded in an audit directory from the time `since` on (ISO 8601, UTC)."""

    def __init__(self, directory: Path, since: str = "") -> None:
        self._directory = directory
        self._since = since
        self.unreadable = 0
        """Lines passed over so far that were no records, and decisions that lack a part."""
        self._parts = Parts()

    def __iter__(self) -> Iterator[Recorded]:
        self._parts = Parts()
        for path in self._paths():
            with path.open("rb") as file:
                for line in iter(lambda: file.readline(2 * MAX_RECORD_BYTES), b""):
                    wanted = _EVENT in line or (_PART in line and _OF in line)
                    recorded = self._read(line) if wanted else None
                    if recorded is not None:
                        yield recorded

    def _paths(self) -> list[Path]:
        """Segments that may hold records from `since` on: a segment ends where the next begins."""
        paths = segments(self._directory)
        starts = [_first_ts(path) for path in paths]
        late = [place for place, ts in enumerate(starts) if ts and ts < self._since]
        return paths[late[-1] if late else 0 :]

    def _read(self, line: bytes) -> Recorded | None:
        if not line.endswith(b"\n"):
            return None
        try:
            record = orjson.loads(line)
            whole = self._parts.take(record)
            if record["event"] != "decision":
                return None
            recorded = _recorded(whole.record)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            self.unreadable += 1
            return None
        if recorded.ts < self._since:
            return None
        self.unreadable += whole.torn
        return None if whole.torn else recorded


def _recorded(record: dict[str, Any]) -> Recorded:
    """Raises `KeyError` or `TypeError` when it is no decision."""
    features = Features(
        key=str(record.get("key", "")),
        label=record["label"],
        declared=record.get("declared"),
        findings=tuple(_finding(item) for item in record["detectors"]),
        unscanned=tuple(map(str, record.get("unscanned", ()))),
        complete="declared" in record,
    )
    return Recorded(
        str(record["ts"]),
        str(record.get("request_id", "")),
        features,
        recorded_rulings(record["verdicts"]),
    )


def _finding(item: dict[str, Any]) -> Finding:
    # Records of before there were likelihoods: every detector was sure.
    likelihood = _LIKELIHOODS.get(item.get("likelihood", ""), Likelihood.VERY_LIKELY)
    return Finding(item["id"], int(item["count"]), str(item.get("view", "raw")), likelihood)


def _first_ts(path: Path) -> str:
    """The time of a segment's first record; "" when there is none."""
    with path.open("rb") as file:
        line = file.readline(2 * MAX_RECORD_BYTES)
    try:
        return str(orjson.loads(line)["ts"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ""
