"""What declassifying costs: a streamed chunk, masking and redacting a text.

    PYTHONPATH=appliance python tests/bench/bench_declassify.py

Medians of the best of several runs. What finds the spans, and the scan of the output, are not in
it: `bench_scan.py` measures them.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from conductor.core import Body
from conductor.declassify.leaftexts import rewritten
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.declassify.redact import redact
from conductor.declassify.stream import Restorer
from conductor.detect.spans import Span
from conductor.labels import Clearance, Label

PII = Label(1)
CLEARED = Clearance(1)
WORDS = "the worker that may see it is named before a plan is drawn up for "


def text_with_names(size: int, every: int = 500) -> tuple[str, list[Span]]:
    """A text of about `size` characters with a name every so many, and where the names are."""
    parts: list[str] = []
    spans: list[Span] = []
    at = 0
    while at < size:
        name = f"Anna Rossi {len(spans) % 200}"
        filler = (WORDS * (every // len(WORDS) + 1))[: every - len(name)]
        spans.append(Span(at + len(filler), at + every, "person"))
        parts += (filler, name)
        at += every
    return "".join(parts), spans


def best_s(work: Callable[[], object], repeat: int = 7) -> float:
    """Seconds of the quickest run."""
    best = float("inf")
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def chunks(text: str, letters: int) -> list[Body]:
    """A text as deltas of so many letters."""
    pieces = [text[at : at + letters] for at in range(0, len(text), letters)]
    return [
        {"id": "x", "choices": [{"index": 0, "delta": {"content": one}, "finish_reason": None}]}
        for one in pieces
    ]


def call_chunks(text: str, letters: int) -> list[Body]:
    """The same as arguments of a tool call."""
    pieces = [text[at : at + letters] for at in range(0, len(text), letters)]
    calls = [{"tool_calls": [{"index": 0, "function": {"arguments": one}}]} for one in pieces]
    return [{"choices": [{"index": 0, "delta": call, "finish_reason": None}]} for call in calls]


def per_chunk_us(pseudonyms: Pseudonyms, stream: list[Body], clearance: Clearance) -> float:
    """Microseconds that restoring takes a chunk."""

    def run() -> None:
        restorer = Restorer(pseudonyms, clearance)
        for chunk in stream:
            restorer.feed(chunk)

    return best_s(run) / len(stream) * 1e6


def marked(texts: list[str]) -> list[str]:
    """Every tenth text changed."""
    return [text if place % 10 else text + "!" for place, text in enumerate(texts)]


def main() -> None:
    text, spans = text_with_names(1_000_000)
    pseudonyms = Pseudonyms()
    masked = pseudonyms.mask(text, spans, PII)
    megabytes = len(text.encode()) / 1e6
    print("restoring a stream, us a chunk of 5 letters")
    for name, stream in (
        ("prose without tokens", chunks(text[:100_000], 5)),
        ("prose, a token in 500 letters", chunks(masked[:100_000], 5)),
        ("nothing but tokens", chunks("".join(masked[-400:].split("for ")[-1:]) * 4_000, 5)),
        ("a tool call's arguments", call_chunks(json.dumps({"a": masked[:50_000]}), 5)),
    ):
        print(f"  {name:32} {per_chunk_us(pseudonyms, stream, CLEARED):8.2f}")
    call = [{"arguments": json.dumps([text[at : at + 80] for at in range(0, len(text), 80)])}]
    rows = (
        ("mask, all values new", lambda: Pseudonyms().mask(text, spans, PII)),
        ("mask, all values known", lambda: pseudonyms.mask(text, spans, PII)),
        ("restore", lambda: pseudonyms.restore(masked, CLEARED)),
        ("redact", lambda: redact(text, spans)),
        ("leaves of a call and back", lambda: rewritten(call, marked)),
    )
    print(f"a text of {megabytes:.1f} MB with {len(spans)} names, 200 different, MB/s")
    for name, work in rows:
        print(f"  {name:32} {megabytes / best_s(work):8.1f}")


if __name__ == "__main__":
    main()
