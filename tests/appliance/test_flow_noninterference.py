"""Non-interference of planned workflows, by thousands: who is not cleared sees the same bytes,
whatever the secret is.

A world is a request with a secret, workers with clearances, and rounds of random plans that the
mask of the labels lets through. It is played twice, with two secrets, by the real rules for what
runs, what is shown and how it is put into words; workers repeat all that they are told, so that
whatever could leak does. The planner's own words hold the secret, too. Both runs follow the same
plan: that choosing it tells something is counted by `flow/choices.py`. The daemon as a whole is
held to the same in `test_noninterference.py`.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from conductor.core import Candidate, Card, Heard, Obligation, PlanRequest, Price
from conductor.errors import PlanError
from conductor.flow.classes import flow_of
from conductor.flow.standing import Standing
from conductor.labels import Clearance, Label, join_all
from conductor.plan.language import Access, Builtin, Plan, Step
from conductor.plan.mask import Unmasked, head_of
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool, may_stand_in, validate
from conductor.run.exchange import needed, shown, step_of
from conductor.run.messages import Shown, step_messages
from conductor.workers.builtin import vote

SECRETS = ("GB29 NWBK 6016 1331 9268 19", "MT31MALT01100000000000000000123")
PII, HEALTH = frozenset({"pii"}), frozenset({"health"})
REDACT = Obligation("redact", "redact-pii")
WORLDS = 3000


@dataclass(frozen=True)
class World:
    """A request and who may see what. Clearance decides, and a rule that asks for redaction."""

    seed: int
    question: Label
    clearances: tuple[Clearance, ...]
    picky: frozenset[int]
    """Workers that a rule lets see only what was redacted, however it is labelled."""

    def sees(self, who: int, standing: Standing) -> bool:
        if who in self.picky and REDACT not in standing.discharged:
            return False
        return standing.label.flows_to(self.clearances[who])

    def outside(self, who: int) -> bool:
        return "pii" not in self.clearances[who].compartments


@dataclass
class Played:
    """What one run has come to."""

    secret: str
    texts: dict[int, str] = field(default_factory=dict)
    subtasks: dict[int, str] = field(default_factory=dict)
    standings: dict[int, Standing] = field(default_factory=dict)
    sent: list[tuple[int, str]] = field(default_factory=list)
    """To whom what went, in order."""


def world(seed: int) -> World:
    chance = random.Random(seed)
    clearances = [Clearance(2, PII | HEALTH)]
    while len(clearances) < chance.randint(2, 5):
        clearances.append(
            Clearance(chance.randint(0, 2), chance.choice([frozenset(), HEALTH, PII]))
        )
    rest = range(1, len(clearances))
    return World(
        seed,
        Label(1, PII | (HEALTH if chance.random() < 0.3 else frozenset())),
        tuple(clearances),
        frozenset(who for who in rest if chance.random() < 0.2),
    )


def redacted(standing: Standing) -> Standing:
    lower = Label(standing.label.level, standing.label.compartments - PII)
    return standing.lowered(lower, REDACT)


def request_of(here: World, rounds: list[Plan], played: Played) -> PlanRequest:
    """What the planner of the next round is told of labels."""
    question = Standing.of(here.question)
    steps = sum(len(plan.steps) for plan in rounds)
    control = join_all([here.question, *(one.label for one in played.standings.values())])
    known = [played.standings.get(step, Standing.of(control)) for step in range(steps)]
    card = Card({"general": 0.5}, 1.0, "declared")
    return PlanRequest(
        request_id="r",
        question="q",
        candidates=tuple(
            Candidate(card, Price(), True, 8192, veiled=here.outside(who))
            for who in range(len(here.clearances))
        ),
        prompt_tokens=1,
        heard=tuple(Heard(i, None, played.texts.get(i, ""), 1) for i in range(steps)),
        may_redact=True,
        flow=flow_of(
            question,
            Standing.of(control),
            known,
            redacted=redacted,
            sees=here.sees,
            candidates=len(here.clearances),
        ),
    )


def plan_for(chance: random.Random, pool: PlanPool) -> Plan | None:
    """A random plan that fits, if one is come by."""
    steps: tuple[Step, ...] = ()
    for _ in range(30):
        if len(steps) == pool.max_steps:
            break
        number = pool.first + len(steps)
        tried = (*steps, random_step(chance, number, pool.workers))
        try:
            validate(Plan(tried, pool.first), pool)
        except PlanError as fault:
            if "is no answer" not in str(fault):
                continue
        steps = tried
    while steps and steps[-1].worker is Builtin.REDACT:
        steps = steps[:-1]
    return Plan(steps, pool.first) if steps else None


def random_step(chance: random.Random, number: int, workers: int) -> Step:
    known = tuple(one for one in range(number) if chance.random() < 0.4)
    if number and chance.random() < 0.6:
        known = (chance.randrange(number),)
    kind = chance.random()
    if kind < 0.3:
        one = chance.randrange(-1, number)
        access = Access(True) if one < 0 else Access(steps=(one,))
        return Step(Builtin.REDACT, access)
    if kind < 0.4:
        return Step(Builtin.VOTE, Access(chance.random() < 0.3, known))
    everything = chance.random() < 0.1
    access = Access(everything=True) if everything else Access(chance.random() < 0.15, known)
    text = chance.choice(["", "", Template.SOLVE.value, Template.VERIFY.value, "Use SECRET."])
    return Step(chance.randrange(workers), access, text)


def play(here: World, plan: Plan, pool: PlanPool, order: list[int], look: bool, to: Played) -> None:
    """Run one round."""
    for number in needed(plan, look):
        step, sees = step_of(plan, number), shown(plan, number, look, to.texts)
        if sees is None or (step.worker is Builtin.VOTE and not sees.steps):
            continue
        standing = standing_of(here, plan, number, sees.steps, to)
        subtask = step.subtask.replace("SECRET", to.secret)
        if step.worker is Builtin.VOTE:
            text = to.texts[sees.steps[vote([to.texts[one] for one in sees.steps])]]
        elif step.worker is Builtin.REDACT:
            inputs = [f"I am {to.secret}."] if sees.question else [to.texts[i] for i in sees.steps]
            text, standing = inputs[0].replace(to.secret, "[IBAN]"), redacted(standing)
        else:
            others = [Shown(i, to.subtasks[i], to.texts[i]) for i in sees.steps]
            said = step_messages(
                [{"role": "user", "content": f"I am {to.secret}."}],
                question=sees.question, shown=others, subtask=subtask,
            )  # fmt: skip
            able = [step.worker, *(w for w in order if may_stand_in(plan, number, w, pool))]
            answered = call(here, number, able, str(said), standing, to)
            if answered is None:
                continue
            text, standing = answered, standing.answered()
        to.texts[number], to.subtasks[number], to.standings[number] = text, subtask, standing


def standing_of(
    here: World, plan: Plan, number: int, steps: tuple[int, ...], to: Played
) -> Standing:
    """As the executor joins it."""
    head = head_of(step_of(plan, number), number)
    parts = [to.standings[one] for one in steps]
    if head.view.question or head.free_text or not parts:
        heard = [one.label for step, one in to.standings.items() if step < plan.first]
        parts.append(Standing.of(join_all([here.question, *heard])))
    result = parts[0]
    for part in parts[1:]:
        result = result.join(part)
    return result


def call(
    here: World, number: int, able: list[int], said: str, standing: Standing, to: Played
) -> str | None:
    """Who does not fail repeats what it was told."""
    for who in able:
        assert here.sees(who, standing), "the mask let through what policy forbids"
        to.sent.append((who, said))
        if random.Random(f"{here.seed} {number} {who}").random() > 0.15:
            return f"{who} was told {said}"
    return None


def both(seed: int, *, masked: bool = True) -> Iterator[tuple[World, Played, Played]]:
    """A world's two runs, if a plan was found."""
    here, chance = world(seed), random.Random(seed)
    runs = tuple(Played(secret) for secret in SECRETS)
    rounds: list[Plan] = []
    for turn in range(chance.randint(1, 2)):
        pool = PlanPool.of(request_of(here, rounds, runs[0]))
        if not masked:
            pool = PlanPool(pool.workers, pool.builtins, pool.max_steps, earlier=pool.earlier)
            assert isinstance(pool.mask, Unmasked)
        plan = plan_for(chance, pool)
        if plan is None:
            break
        order = chance.sample(range(pool.workers), pool.workers)
        for run in runs:
            play(here, plan, pool, order, turn == 0, run)
        rounds.append(plan)
    if rounds:
        yield here, *runs


def outside(here: World, run: Played) -> list[tuple[int, str]]:
    return [(who, said) for who, said in run.sent if here.outside(who)]


def test_who_is_not_cleared_sees_the_same_whatever_the_secret_is() -> None:
    told: Counter[str] = Counter()
    for seed in range(WORLDS):
        for here, one, other in both(seed):
            assert outside(here, one) == outside(here, other), f"world {seed}"
            told["worlds"] += 1
            told["sent outside"] += len(outside(here, one))
            told["worlds with something sent outside"] += bool(outside(here, one))
            told["differing inside"] += one.sent != other.sent
            told["labels differ"] += one.standings != other.standings
    assert told["worlds"] > 0.95 * WORLDS
    assert told["worlds with something sent outside"] > 0.2 * WORLDS, told
    assert told["differing inside"] > 0.5 * WORLDS, "the secret must reach those who may see it"
    assert told["labels differ"] == 0


def test_without_the_mask_the_same_workflows_leak(monkeypatch) -> None:
    monkeypatch.setattr(World, "sees", lambda *_: True)
    leaks = sum(
        outside(here, one) != outside(here, other)
        for seed in range(200)
        for here, one, other in both(seed, masked=False)
    )
    assert leaks > 100
