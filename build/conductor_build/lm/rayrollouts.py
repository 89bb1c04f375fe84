"""Plans played by many processes: an `Environment` whose sessions live on Ray actors.

    trainer       opens sessions, waits for their rounds; so many in flight at most
    actor         has an environment of its own, as `build` makes it, and plays on it

An actor that dies, with its node or alone, is replaced, and each session it held is played again
from its first round on the new one: once. What dies a second time is void, `actor:lost`, which is
counted and never scored. Playing again gives the same answers where workers answer by seed or out
of a journal that actors share; elsewhere it costs the calls again, and they may be other answers.

Left out: how the environment plays (`live/`), and money. An environment that stops at a sum counts
for its own actor: give each actor its share.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from conductor_build.live.environment import Environment, Outcome, Session
from conductor_build.live.game import Game
from conductor_build.lm.raycluster import RayError

if TYPE_CHECKING:
    from conductor.core import PlanRequest
    from conductor.plan.language import Plan

LOST, LATE = "actor:lost", "actor:timeout"
"""Why a play is void here, beside what the environment itself says."""


@dataclass(frozen=True)
class Crew:
    """How many actors there are, and how much each of them is given."""

    actors: int = 1
    in_flight: int = 16
    """Plays that one actor has at a time; it waits for workers most of that time."""
    cpus: float = 1.0
    """What one actor takes of the cluster's CPUs."""
    start_timeout_s: float = 120.0
    play_timeout_s: float = 900.0
    """For one round of one play, waiting for a place at an actor not counted."""
    replays: int = 1
    """How often a session whose actor died is played again."""


class RayEnvironment:
    """Opens sessions that are played on the actors of a crew. See `raycluster.running`."""

    def __init__(self, build: Callable[[], Environment], crew: Crew = Crew()) -> None:
        """Start the actors. `build` is called once in each and travels there pickled.

        Raises `RayError` when the cluster has no place for them within the time limit.
        """
        self._build, self._crew = build, crew
        self._players = [self._hired() for _ in range(crew.actors)]
        self._shared: dict[int, tuple[object, Any]] = {}
        self._gates: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore]
        self._gates = WeakKeyDictionary()
        self._numbers = count()
        self.lost = 0
        """Actors that died so far."""
        self.simulated = all(self._ready())

    def open(self, game: Game) -> Session:
        """A session of this game. Nothing is played yet."""
        return _RaySession(self, next(self._numbers), self._dealt(game), self._crew.replays)

    def close(self) -> None:
        """End the actors; sessions that are open are lost."""
        import ray

        for player in self._players:
            ray.kill(player.actor)
        self._players = []

    # -- what sessions ask for ----------------------------------------------------------------

    def gate(self) -> asyncio.Semaphore:
        """What bounds the plays in flight in this event loop."""
        loop = asyncio.get_running_loop()
        places = self._crew.actors * self._crew.in_flight
        return self._gates.setdefault(loop, asyncio.Semaphore(places))

    def idlest(self) -> _Player:
        """The actor with the fewest plays."""
        return min(self._players, key=lambda player: player.plays)

    def replace(self, player: _Player) -> None:
        """Put a new actor in the place of a dead one, unless somebody has done so."""
        if player in self._players:
            self.lost += 1
            self._players[self._players.index(player)] = self._hired()

    async def played(self, player: _Player, number: int, dealt: _Dealt, plans: _Plans) -> _Reply:
        """What has come of a session's last plan. Raises `_Gone`, `TimeoutError`, and whatever the
        environment raises."""
        import ray
        from ray.exceptions import RayActorError

        player.plays += 1
        answer = player.actor.play.remote(number, dealt.task, dealt.rest, plans)
        try:
            async with asyncio.timeout(self._crew.play_timeout_s):
                reply: _Reply = await answer
        except RayActorError:
            raise _Gone from None
        except (TimeoutError, asyncio.CancelledError):
            ray.cancel(answer)
            raise
        finally:
            player.plays -= 1
        return reply

    # -- actors ---------------------------------------------------------------------------------

    def _hired(self) -> _Player:
        import ray

        remote: Any = ray.remote
        hire = remote(num_cpus=self._crew.cpus, max_concurrency=self._crew.in_flight)(_Actor)
        return _Player(hire.remote(self._build))

    def _ready(self) -> Sequence[bool]:
        import ray

        asked = [player.actor.simulated.remote() for player in self._players]
        try:
            answers: Sequence[bool] = ray.get(asked, timeout=self._crew.start_timeout_s)
        except ray.exceptions.RayActorError:
            raise RayError(
                "an actor cannot start: every node needs this version of conductor-build, and "
                "whatever the environment is made of"
            ) from None
        except ray.exceptions.GetTimeoutError:
            raise RayError(
                f"the cluster has no place for {self._crew.actors} actors of {self._crew.cpus:g} "
                f"CPUs after {self._crew.start_timeout_s:g} s: ask for fewer, or add nodes"
            ) from None
        return answers

    def _dealt(self, game: Game) -> _Dealt:
        """The game in two parts: a task may be large, and is sent to a node once."""
        import ray

        kept = self._shared.get(id(game.task))
        if kept is None:
            kept = self._shared[id(game.task)] = (game.task, ray.put(game.task))
        rest = {name: value for name, value in vars(game).items() if name != "task"}
        return _Dealt(kept[1], rest)


# -- the trainer's side ---------------------------------------------------------------------------

_Plans = list[tuple["Plan", bool]]
"""All plans of a session so far, each with whether its answers are looked at."""


class _Reply(NamedTuple):
    request: PlanRequest | None
    outcome: Outcome | None
    """When there is no further request."""


class _Dealt(NamedTuple):
    task: Any
    """A reference into Ray's object store."""
    rest: dict[str, Any]


class _Gone(Exception):
    """The actor died."""


@dataclass(eq=False)
class _Player:
    actor: Any
    plays: int = 0


@dataclass
class _RaySession:
    crew: RayEnvironment
    number: int
    dealt: _Dealt
    replays: int
    plans: _Plans = field(default_factory=list)
    player: _Player | None = None
    ended: Outcome | None = None

    async def play(self, plan: Plan, look: bool) -> PlanRequest | None:
        """The next round's request, or None when the request has its answer."""
        self.plans.append((plan, look))
        async with self.crew.gate():
            reply = await self._reply()
        self.ended = reply.outcome
        return reply.request

    async def _reply(self) -> _Reply:
        while True:
            if self.player is None:
                self.player = self.crew.idlest()
            try:
                return await self.crew.played(self.player, self.number, self.dealt, self.plans)
            except TimeoutError:
                return _Reply(None, _void(LATE, len(self.plans)))
            except _Gone:
                self.crew.replace(self.player)
                self.player = None
            if self.replays == 0:
                return _Reply(None, _void(LOST, len(self.plans)))
            self.replays -= 1

    def outcome(self) -> Outcome:
        """How it ended. Raises `RuntimeError` before it has."""
        if self.ended is None:
            raise RuntimeError("this session has not ended: play its rounds first")
        return self.ended


def _void(why: str, rounds: int) -> Outcome:
    return Outcome(
        quality=None,
        void=why,
        cost_usd_per_1k=0.0,
        prompt_tokens=0,
        output_tokens=0,
        calls=0,
        rounds=rounds,
        seconds=0.0,
        used=(),
    )


# -- the actor's side -----------------------------------------------------------------------------

_MOST_OPEN = 4096
"""Sessions that an actor remembers; whoever left one without a word is forgotten in the end."""


class _Actor:
    """An environment in a process of its own, and the sessions that are open there."""

    def __init__(self, build: Callable[[], Environment]) -> None:
        self._environment = build()
        self._open: OrderedDict[int, tuple[Session, int]] = OrderedDict()

    async def simulated(self) -> bool:
        return self._environment.simulated

    async def play(self, number: int, task: Any, rest: dict[str, Any], plans: _Plans) -> _Reply:
        """Play the plans of a session that were not played here yet: only the last one, but all of
        them when the session has come from an actor that died."""
        session, played = self._open.pop(number, (None, 0))
        if session is None:
            session = self._environment.open(Game(task=task, **rest))
        request = None
        for plan, look in plans[played:]:
            request = await session.play(plan, look)
        if request is None:
            return _Reply(None, session.outcome())
        self._open[number] = (session, len(plans))
        while len(self._open) > _MOST_OPEN:
            self._open.popitem(last=False)
        return _Reply(request, None)
