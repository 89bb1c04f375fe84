"""The cases, and one round of measuring one of them.

What a call through the appliance adds is told by calls that go directly to the fake upstream and
through the appliance in turn, in the same run: whatever else the machine does hits both.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median, quantiles

from bench import box as names
from bench.bench_scan import prose
from bench.box import DELAY_MS, Box
from bench.load import MARK, Job, Target
from support.configs import Tree

ALONE, TOGETHER, PACED = 150, 50, 4
"""Requests of a connection and round: one connection, sixteen, sixteen with a slow upstream."""
CONNECTIONS = 16
QUESTION_CHARS = 800


@dataclass(frozen=True)
class Case:
    """`model` is what the client asks the appliance for, and `upstream` what it then asks the
    upstream for; `slow` leads to an upstream that takes `DELAY_MS` to its first byte."""

    name: str
    model: str
    slow: str | None
    upstream: str = "ok"
    stream: bool = False
    unix: bool = False
    others: tuple[str, ...] = ()
    """Processes of the appliance that take part, besides `serve`."""
    share: float = 1.0
    """Of the usual number of requests."""


CASES = (
    Case("worker by id, TCP", names.TCP, names.SLOW),
    Case("worker by id, Unix socket", names.UNIX, names.SLOW_UNIX, unix=True),
    Case("worker by id, 20 chunks", names.STREAM, names.SLOW, "long-20", stream=True),
    Case("planned: conductor", "conductor", "conductor-quality", others=("planner",)),
    Case("remote, through egress", names.REMOTE, names.SLOW_REMOTE, others=("egress",), share=0.3),
)


@dataclass(frozen=True)
class Round:
    """Times in milliseconds. `cpu_*`: of `serve`, a request; `cpu_others`: of others that
    take part. `added_*`: to the first byte, at the median, beside a direct call."""

    cpu_alone: float
    cpu_together: float
    cpu_others: dict[str, float]
    per_s: float
    direct_per_s: float
    direct_alone: float
    added_alone: float
    added_alone_p95: float
    added_paced: float | None


def measure(box: Box, case: Case) -> Round:
    """One round."""
    direct = box.direct(_body(case, case.upstream), unix=case.unix)
    through = box.through(_body(case, case.model))
    alone, together = (round(case.share * number) for number in (ALONE, TOGETHER))
    with _cpu_ms(box, alone) as cpu_alone:
        one = box.loader.run(Job([direct, through], 1, alone))
    with _cpu_ms(box, together * CONNECTIONS) as cpu_together:
        many = box.loader.run(Job([through], CONNECTIONS, together))
    straight = box.loader.run(Job([direct], CONNECTIONS, together))
    others = {name: cpu_together[name] for name in case.others}
    beside, itself = one.first_byte_ms
    return Round(
        cpu_alone=cpu_alone["serve"],
        cpu_together=cpu_together["serve"],
        cpu_others=others,
        per_s=many.answers / many.wall_s,
        direct_per_s=straight.answers / straight.wall_s,
        direct_alone=median(beside),
        added_alone=median(itself) - median(beside),
        added_alone_p95=quantiles(itself, n=20)[-1] - quantiles(beside, n=20)[-1],
        added_paced=_paced(box, case),
    )


def warm(box: Box, case: Case) -> None:
    """Connections, caches and whatever is made on first use."""
    box.loader.run(Job([box.through(_body(case, case.model))], CONNECTIONS, 5))


def body(model: str, text: str, *, stream: bool = False) -> Tree:
    """A request; the mark in it becomes a running number."""
    messages = [
        {"role": "system", "content": f"You answer in one sentence. {MARK.decode()}"},
        {"role": "user", "content": text},
    ]
    return {"model": model, "messages": messages, "temperature": 0.2, "stream": stream}


def _body(case: Case, model: str) -> Tree:
    return body(model, prose(QUESTION_CHARS), stream=case.stream)


def _paced(box: Box, case: Case) -> float | None:
    """Added with sixteen under way at a model that takes its time: what clients will see. In
    `TOGETHER` all sixteen queue for the processor, as all there is to wait for is us."""
    if case.slow is None:
        return None
    targets: list[Target] = [
        box.direct(_body(case, f"slow-first-byte-{DELAY_MS}"), unix=case.unix),
        box.through(_body(case, case.slow)),
    ]
    result = box.loader.run(Job(targets, CONNECTIONS, PACED, over_s=2 * DELAY_MS / 1000))
    beside, itself = result.first_byte_ms
    return median(itself) - median(beside)


@contextmanager
def _cpu_ms(box: Box, requests: int) -> Iterator[dict[str, float]]:
    """What each process spends within, a request; filled in at the end."""
    spent: dict[str, float] = {}
    before = {name: process.cpu_s for name, process in box.processes.items()}
    yield spent
    for name, process in box.processes.items():
        spent[name] = 1000 * (process.cpu_s - before[name]) / requests
