"""What the cards of the embedded models say: share of right answers a domain, speed, length.

    PYTHONPATH=appliance:tests python tests/bench/measure_cards.py [--config configs/demo] \
        [--worker ID ...] [--each N] [--answers FILE]

A worker after the other, in the process that the appliance gives it, on a socket of its own; one
request at a time. Thirty questions a domain leave an interval of about 0.15 to either side, which
is printed. Speed is by the worker's processor time, so that what else runs disturbs it little; the
cache and the memory are shared all the same, and the ratio of two speeds says more than either.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

from bench.card_judging import right
from bench.card_questions import DOMAINS, Question, questions
from conductor.config import load
from conductor.process.probe import answers as ready
from support.processes import command, environment

MAX_TOKENS = 256
"""Of an answer; what is not said by then counts as not known."""
START_S, ANSWER_S = 60.0, 300.0
Z95 = 1.96


@dataclass(frozen=True)
class Answer:
    """One answer and what came of it. `seconds` are of the processor, for writing alone."""

    worker: str
    domain: str
    question: str
    text: str
    right: bool
    tokens: int
    seconds: float


# -- asking ---------------------------------------------------------------------------------------


def ask_all(worker: str, model: str, config: Path, asked: Sequence[Question]) -> list[Answer]:
    """Start the worker, ask it everything, and end it."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # sockets have short names
        socket = Path(folder) / "worker.sock"
        with _running(worker, config, socket) as process:
            transport = httpx.HTTPTransport(uds=str(socket))
            with httpx.Client(
                transport=transport, base_url="http://worker/v1", timeout=ANSWER_S
            ) as client:
                return [_ask(client, process, worker, model, question) for question in asked]


def _ask(
    client: httpx.Client, process: psutil.Process, worker: str, model: str, question: Question
) -> Answer:
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": question.text}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
    }
    before = _processor_s(process)
    told = client.post("/chat/completions", json=body).raise_for_status().json()
    used = _processor_s(process) - before
    timings = told["timings"]
    writing = timings["predicted_ms"] / (timings["predicted_ms"] + timings["prompt_ms"])
    text = told["choices"][0]["message"]["content"]
    return Answer(
        worker,
        question.domain,
        question.text,
        text,
        right(question, text),
        told["usage"]["completion_tokens"],
        used * writing,
    )


def _processor_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def _running(worker: str, config: Path, socket: Path) -> Iterator[psutil.Process]:
    words = ["--config", str(config), "--socket", str(socket)]
    process = subprocess.Popen(command("worker", worker, *words), env=environment())
    try:
        deadline = time.monotonic() + START_S
        while not asyncio.run(ready(socket, "/health")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{worker} did not start")
            time.sleep(0.1)
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


# -- telling --------------------------------------------------------------------------------------


def told(answers: Sequence[Answer]) -> Iterator[str]:
    """A line for each worker and domain, then one for each worker."""
    workers = list(dict.fromkeys(one.worker for one in answers))
    for worker in workers:
        own = [one for one in answers if one.worker == worker]
        for domain in dict.fromkeys(one.domain for one in own):
            these = [one for one in own if one.domain == domain]
            good = sum(one.right for one in these)
            yield (
                f"{worker} {domain}: {good} of {len(these)} right, {good / len(these):.2f} "
                f"+-{half_width(good, len(these)):.2f}, {_length(these):.0f} tokens an answer"
            )
        speed = sum(one.tokens for one in own) / sum(one.seconds for one in own)
        other = [one for one in answers if one.worker != worker]
        against = f", {_length(own) / _length(other):.2f} times the others'" if other else ""
        yield (
            f"{worker}: {speed:.1f} tokens a processor second, "
            f"{_length(own):.0f} tokens an answer{against}"
        )


def half_width(right_count: int, asked: int) -> float:
    """Of Wilson's 95 % interval."""
    share = right_count / asked
    spread = share * (1 - share) / asked + Z95**2 / (4 * asked**2)
    return Z95 * math.sqrt(spread) / (1 + Z95**2 / asked)


def _length(answers: Sequence[Answer]) -> float:
    return sum(one.tokens for one in answers) / len(answers)


def main() -> None:
    """Ask, then tell; with --answers keep every answer, for a look at how it was judged."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("--config", type=Path, default=Path("configs/demo"))
    arguments.add_argument("--worker", action="append")
    arguments.add_argument("--each", type=int, default=30, help="questions of each domain")
    arguments.add_argument("--answers", type=Path)
    chosen = arguments.parse_args()
    embedded = [one for one in load(chosen.config).workers if one.embedded_model is not None]
    domains = [[q for q in questions() if q.domain == name] for name in DOMAINS]
    asked = [question for domain in domains for question in domain[: chosen.each]]
    answers: list[Answer] = []
    for one in embedded:
        if chosen.worker is None or one.id in chosen.worker:
            answers += ask_all(one.id, one.model, chosen.config, asked)
    if chosen.answers:
        chosen.answers.write_text("".join(json.dumps(asdict(one)) + "\n" for one in answers))
    print(*told(answers), sep="\n")


if __name__ == "__main__":
    main()
