"""The language-model conductor: a causal model that writes plans as text, token by token.

    request -> prompt (`plan/prompt.py`) -> ids --+
    request -> pool -> automaton -----------------+--> runner (`lm_runner.py`) -> ids -> plan

The same prompt and automaton as in training; what is decoded always parses, fits the pool and shows
nobody what the labels forbid. Around the model stand three rules:

1.  Where nobody can be asked, the answer that stands is kept; without one there is no plan.
2.  It looks at a round's answers when it was trained with rounds, some are left, and the plan calls
    somebody; then its next plan decides.
3.  Stand-ins are all others by their card's skill less price, those that the plan asks last. A lone
    worker is not its own stand-in.

A plan that has no room left in `max_tokens` is ended in the shortest way, as in training. One that
takes longer than `limit_s` is a `PlanError`, upon which `serve` plans by the rule. Whoever stops
waiting for a plan ends its decoding.

Left out: windows of workers, which the prompt tells and the model weighs.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

from conductor.core import Candidate, Card, PlanRequest, Price
from conductor.errors import ConductorError, PlanError, StartError
from conductor.plan.automaton import Automaton, State
from conductor.plan.closing import closing
from conductor.plan.language import Builtin, Plan, parse
from conductor.plan.validate import PlanPool
from conductor.plan.writing import ENDED
from conductor.planner.bundle import Runtime
from conductor.planner.bundlefolder import laid_out
from conductor.planner.domain import domain
from conductor.planner.engine import Planned
from conductor.planner.kinds import LM
from conductor.planner.lm_parts import FOLDER, Parts, read_parts
from conductor.planner.lm_runner import (
    DEFAULT_RUNNER,
    Runner,
    RunnerFailed,
    RunnerSettings,
    Token,
    Wanted,
    find_runner,
)
from conductor.planner.ranking import price_usd, skill
from conductor.planner.trust import resolve

_REQUESTS = 1000
"""What `PlanRequest.cost_weight` counts cost by."""
_START_S = 120.0
"""For the first tokens: they take the prefix to be computed, and on a GPU kernels to be chosen."""

_START_TOKENS = 8


@dataclass(frozen=True)
class Decoding:
    """How tokens are chosen, and when to give up."""

    limit_s: float = 1.8
    """For one plan, waiting for the runner included. Below the client's own limit, so that it hears
    a refusal and does not take the planner to hang."""
    max_tokens: int = 512
    temperature: float = 1.0
    sample: bool = False
    """Draw tokens, as for feedback to learn from. False: the likeliest plan, the same each time."""

    def __post_init__(self) -> None:
        """Raises `StartError` for values that cannot work."""
        if self.limit_s <= 0 or self.max_tokens < 1 or not 0 < self.temperature < math.inf:
            raise StartError("limit_s, max_tokens and temperature of decoding are above 0")


@dataclass(frozen=True)
class Writing:
    """A plan with what a further training needs of how it was written (off-policy correction)."""

    plan: Plan
    tokens: tuple[Token, ...]

    @property
    def log_prob(self) -> float:
        """Of the whole plan under the mask and temperature that it was written with."""
        return min(0.0, math.fsum(token.log_prob for token in self.tokens))


class LmEngine:
    """`PlanEngine` over one runner. Prompts are made ready in a thread of its own."""

    name = "lm"

    def __init__(
        self, runner: Runner, parts: Parts, decoding: Decoding | None = None, bundle: str = ""
    ) -> None:
        """`bundle` is the id of where all that is from. Raises `StartError` when the model does not
        know all tokens of the tables."""
        if runner.vocabulary < parts.tables.tokens:
            raise StartError(
                f"the model knows {runner.vocabulary} tokens and its automaton tables "
                f"{parts.tables.tokens}: they are not of one bundle, export it again"
            )
        self._runner, self._parts, self._bundle = runner, parts, bundle
        self._decoding = decoding or Decoding()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lm prompts")

    @classmethod
    def load(
        cls,
        bundle: Path,
        trusted_keys: Sequence[Path],
        decoding: Decoding | None = None,
        settings: RunnerSettings | None = None,
        runner: str = DEFAULT_RUNNER,
    ) -> LmEngine:
        """From a bundle that can be trusted; tried once. Raises `BundleError`, `ConfigError` or
        `StartError`."""
        load = find_runner(runner)
        opened = resolve(bundle, trusted_keys, Runtime(kind=LM.name))
        parts = read_parts(opened.read)
        with laid_out(opened) as folder:
            running = load(folder / FOLDER, settings or RunnerSettings())
        engine = cls(running, parts, decoding, opened.id)
        try:
            asyncio.run(engine.try_once())
        except BaseException:
            engine.close()
            raise
        return engine

    @property
    def at_once(self) -> int:
        """Plans that may be under way: they are written side by side, and the runner queues."""
        return self._runner.at_once

    def close(self) -> None:
        """End everything and free the model."""
        self._runner.close()
        self._thread.shutdown(cancel_futures=True)

    async def try_once(self) -> None:
        """Begin a plan, so that a model that does not work, or a runner that does not keep to the
        automaton, is found at start, and the prefix is computed before the first question. Raises
        `StartError`."""
        cards = (Card({"general": skill}, 1.0, "declared") for skill in (0.0, 0.5, 1.0))
        pool = tuple(Candidate(card, Price(), True, 8192) for card in cards)
        try:
            async with asyncio.timeout(_START_S):
                asked = PlanRequest("start", "How many?", pool, 4, rounds_left=1)
                _walked(*await self._tokens(asked, _START_TOKENS))
        except (ConductorError, TimeoutError) as error:
            # A runner's own error names what broke and nothing else.
            why = str(error) if isinstance(error, RunnerFailed) else type(error).__name__
            raise StartError(f"the bundle's language model writes no plan here ({why})") from None

    async def ready(self) -> bool:
        return True

    async def plan(self, request: PlanRequest) -> Planned:
        """Raises `PlanError` when no plan is possible or none came in time, and what the runner
        raises."""
        pool = PlanPool.of(request)
        if not request.candidates or not pool.max_steps:
            return self._without_asking(pool)
        writing = await self.write(request)
        plan = writing.plan
        return Planned(
            plan,
            self.name,
            alternates(request, plan),
            look=looks(request, plan, self._parts.rounds),
            log_prob=writing.log_prob,
            bundle=self._bundle,
        )

    async def write(self, request: PlanRequest) -> Writing:
        """The model's own plan, with its tokens. Raises as `plan` does."""
        limit_s = self._decoding.limit_s
        try:
            async with asyncio.timeout(limit_s):
                return await self._write(request)
        except TimeoutError:
            raise PlanError(f"the language model wrote no plan within {limit_s:g} s") from None

    async def _write(self, request: PlanRequest) -> Writing:
        automaton, tokens = await self._tokens(request, self._decoding.max_tokens)
        return Writing(self._read(automaton, tokens, len(request.heard)), tuple(tokens))

    async def _tokens(self, request: PlanRequest, most: int) -> tuple[Automaton, list[Token]]:
        loop = asyncio.get_running_loop()
        wanted = await loop.run_in_executor(self._thread, self._wanted, request, most)
        tokens: list[Token] = []
        async with aclosing(self._runner.write(wanted)) as coming:
            async for token in coming:
                tokens.append(token)
        return wanted.automaton, tokens

    def _wanted(self, request: PlanRequest, most: int) -> Wanted:
        parts, how = self._parts, self._decoding
        automaton = Automaton(parts.tables, PlanPool.of(request), parts.encode)
        if not any(automaton.allowed(automaton.start())):
            raise PlanError("no plan is possible: nobody may be shown anything")
        return Wanted(
            prefix=parts.prefix,
            rest=tuple(parts.encode(parts.prompter.write(request).rest)),
            automaton=automaton,
            max_tokens=most,
            temperature=how.temperature,
            seed=secrets.randbits(62) if how.sample else None,
        )

    def _read(self, automaton: Automaton, tokens: Sequence[Token], first: int) -> Plan:
        """The plan. One that had no room to end is ended in the shortest way, as in training."""
        tables, state = self._parts.tables, _walked(automaton, tokens)
        text = b"".join(tables.bytes_of(token.id) for token in tokens)
        if state.place != ENDED:
            text += closing(state)
        return parse(text.decode(errors="replace"), first)

    def _without_asking(self, pool: PlanPool) -> Planned:
        """Rule 1."""
        if not pool.may_stop:
            raise PlanError("no candidate to plan with, or no step left")
        return Planned(Plan(first=pool.first), self.name)


def _walked(automaton: Automaton, tokens: Sequence[Token]) -> State:
    """Where the automaton stands after these tokens. Whichever runner wrote them, and wherever: one
    that is not allowed, or whose chance is no number, raises `PlanError`."""
    state = automaton.start()
    for token in tokens:
        if not math.isfinite(token.log_prob):
            raise PlanError("the runner tells a chance that is no number")
        state = automaton.advance(state, token.id)
    return state


def looks(request: PlanRequest, plan: Plan, rounds: int) -> bool:
    """Rule 2. `rounds` is how many a request had in training."""
    may_look = request.rounds_left > 0 and not request.one_step
    return rounds > 1 and may_look and plan.calls > 0


def alternates(request: PlanRequest, plan: Plan) -> tuple[int, ...]:
    """Rule 3: ordinals, the first to stand in first."""
    asked = {step.worker for step in plan.steps if not isinstance(step.worker, Builtin)}
    lone = asked if len(asked) == 1 else set()
    topic, rate = domain(request.question), request.cost_weight * _REQUESTS

    def order(ordinal: int) -> tuple[bool, float, int]:
        one = request.candidates[ordinal]
        worth = skill(one.card, topic) - rate * price_usd(one, request.prompt_tokens)
        return ordinal in asked, -worth, ordinal

    others = (ordinal for ordinal in range(len(request.candidates)) if ordinal not in lone)
    return tuple(sorted(others, key=order)) if asked else ()
