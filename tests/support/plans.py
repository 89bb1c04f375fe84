"""Plans, pools and candidates for tests: Hypothesis strategies and short constructors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from conductor.core import Candidate, Card, Flow, Heard, PlanRequest, Preference, Price
from conductor.errors import PlanError
from conductor.plan.language import (
    MAX_STEPS,
    MAX_TOTAL_STEPS,
    Access,
    Builtin,
    Plan,
    Step,
)
from conductor.plan.mask import Head, LabelMask, Mask, Unmasked, head_of
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, validate

GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
_LINE = "-----\n"


def golden(kind: str) -> list[tuple[str, str, str]]:
    """(name, input, expected) of every golden file whose name begins with `kind`."""
    cases = []
    for path in sorted(GOLDEN.glob(f"{kind}-*.txt")):
        given, _, expected = path.read_text(encoding="utf-8").rpartition(_LINE)
        cases.append((path.stem, given, expected))
    assert cases, f"no golden files for {kind}"
    return cases


# -- requests ---------------------------------------------------------------------------------


def candidate(
    *,
    price: float = 1.0,
    local: bool = True,
    speed: float = 50.0,
    context: int = 8192,
    verbosity: float = 1.0,
    **skill: float,
) -> Candidate:
    """A worker's anonymous side; `price` is USD per million tokens both ways."""
    card = Card(skill or {"general": 0.5}, speed, "declared", verbosity)
    return Candidate(card, Price(price, price), local, context)


def request(
    *candidates: Candidate, question: str = "Hello there", preference: Preference = "balanced"
) -> PlanRequest:
    tokens = len(question) // 4
    return PlanRequest("r-1", question, candidates or (candidate(),), tokens, preference)


def heard(*answers: str, workers: tuple[int | None, ...] = ()) -> tuple[Heard, ...]:
    """What steps 0, 1, ... answered, one worker after the other unless `workers` says who."""
    said = zip(workers or range(len(answers)), answers, strict=True)
    return tuple(Heard(step, worker, text, len(text)) for step, (worker, text) in enumerate(said))


# -- plans ------------------------------------------------------------------------------------

_CHARACTERS = st.characters(
    exclude_categories=("Cs", "Cc", "Zl", "Zp"), include_characters=" -q*,0"
)


def _text_fits(text: str) -> bool:
    return bool(text) and text != "-" and text == text.strip(" ")


subtasks = st.one_of(
    st.just(""),
    st.text(_CHARACTERS, min_size=1, max_size=12).filter(_text_fits),
    st.sampled_from(["--", "- x", "q", "0", "a" * 1000, "é" * 500, "🙂" * 250]),
    st.sampled_from([Template.SOLVE.value, Template.VERIFY.value, Template.VERIFY.value + " x"]),
)


@st.composite
def accesses(draw: st.DrawFn, number: int) -> Access:
    if draw(st.integers(0, 4)) == 0:
        return Access(everything=True)
    steps = draw(st.sets(st.integers(0, number - 1))) if number else set()
    return Access(draw(st.booleans()), tuple(sorted(steps)))


@st.composite
def steps(draw: st.DrawFn, number: int, workers: int) -> Step:
    worker = draw(st.one_of(st.integers(0, workers - 1), st.sampled_from(Builtin)))
    text = draw(subtasks) if isinstance(worker, int) or draw(st.integers(0, 5)) == 0 else ""
    return Step(worker, draw(accesses(number)), text)


@st.composite
def plans(draw: st.DrawFn, workers: int = 12) -> Plan:
    """Any plan of the language, of any round, whether or not it fits a pool."""
    length = draw(st.integers(0, MAX_STEPS))
    first = draw(st.one_of(st.just(0), st.integers(0, MAX_TOTAL_STEPS - length)))
    return Plan(tuple(draw(steps(first + place, workers)) for place in range(length)), first)


# -- pools ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClearedMask:
    """A mask as labels make it: only `cleared` workers see the question, or what was made of it
    without a redaction in between, or free text by a planner that has seen it."""

    cleared: frozenset[int]

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        if isinstance(head.worker, Builtin) or head.worker in self.cleared:
            return True
        return not head.free_text and not self._sensitive(earlier, head)

    def _sensitive(self, earlier: tuple[Head, ...], head: Head) -> bool:
        return head.view.question or any(
            self._output_sensitive(earlier, step) for step in head.view.steps
        )

    def _output_sensitive(self, earlier: tuple[Head, ...], step: int) -> bool:
        head = earlier[step]
        return head.worker is not Builtin.REDACT and self._sensitive(earlier[:step], head)


@dataclass(frozen=True)
class TextOnly:
    """A mask that no label makes: every worker must be given an instruction."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        return head.free_text or isinstance(head.worker, Builtin)


@dataclass(frozen=True)
class NobodyAfterRedaction:
    """A mask under which a redaction, though permitted, leads nowhere."""

    def permits(self, earlier: tuple[Head, ...], head: Head) -> bool:
        return all(before.worker is not Builtin.REDACT for before in earlier)


@st.composite
def flows(draw: st.DrawFn, heard: int, workers: int = 12) -> Flow:
    """Two compartments: class 0 to 3 says as bits which of them data has; `redact` removes some."""
    classes, removed = st.integers(0, 3), draw(st.integers(0, 3))
    return Flow(
        question=draw(classes),
        control=draw(classes),
        heard=tuple(draw(classes) for _ in range(heard)),
        joins=tuple(tuple(one | other for other in range(4)) for one in range(4)),
        redacted=tuple(one & ~removed for one in range(4)),
        sees=tuple(draw(st.frozensets(st.integers(0, workers - 1))) for _ in range(4)),
    )


masks: st.SearchStrategy[Mask] = st.one_of(
    st.just(Unmasked()),
    st.frozensets(st.integers(0, 11)).map(ClearedMask),
    flows(MAX_TOTAL_STEPS).map(LabelMask),
    st.just(TextOnly()),
    st.just(NobodyAfterRedaction()),
)


@st.composite
def pools(draw: st.DrawFn) -> PlanPool:
    """Pools of first and further rounds."""
    rounds_before = draw(st.one_of(st.just(0), st.integers(0, MAX_TOTAL_STEPS)))
    may_stop = draw(st.booleans()) or rounds_before == MAX_TOTAL_STEPS
    most = min(MAX_STEPS, MAX_TOTAL_STEPS - rounds_before)
    earlier = [draw(steps(number, 12)) for number in range(rounds_before)]
    return PlanPool(
        workers=draw(st.integers(0, 12)),
        builtins=draw(st.frozensets(st.sampled_from(Builtin))),
        max_steps=draw(st.integers(0 if may_stop else 1, most)),
        max_calls=draw(st.one_of(st.just(MAX_STEPS), st.integers(0, MAX_STEPS))),
        may_stop=may_stop,
        earlier=tuple(head_of(step, number) for number, step in enumerate(earlier)),
        mask=draw(st.one_of(masks, flows(rounds_before).map(LabelMask))),
    )


@st.composite
def fitting(draw: st.DrawFn) -> tuple[Plan, PlanPool]:
    """A pool and a plan that fits it, by the validator's word; the plan may be empty."""
    pool = draw(pools())
    chosen: tuple[Step, ...] = ()
    for _ in range(10 if pool.max_steps else 0):
        step = draw(steps(pool.first + len(chosen), max(1, pool.workers)))
        if len(chosen) < pool.max_steps and _may_follow(chosen, step, pool):
            chosen = (*chosen, step)
    while chosen and chosen[-1].worker is Builtin.REDACT:
        chosen = chosen[:-1]
    return Plan(chosen, pool.first), pool


def _may_follow(chosen: tuple[Step, ...], step: Step, pool: PlanPool) -> bool:
    try:
        validate(Plan((*chosen, step), pool.first), pool)
    except PlanError as fault:
        return "is no answer" in str(fault)  # a redaction, which a later step may still use
    return True
