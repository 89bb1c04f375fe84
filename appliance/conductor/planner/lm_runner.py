"""The seam to whatever runs a language model: ids in, ids of a plan out, one by one.

A runner holds one checkpoint and writes plans for many requests at once. It knows no request, no
card and no text: it is given ids and the automaton of the plan that is wanted, and may choose only
among the tokens that this allows. Packages offer runners as entry points of the group
`conductor.runners`: callables `load(folder, settings) -> Runner`. `torch` is the project's own.

The folder is one that `bundlefolder.py` laid out: `lm` in a copy of the bundle that nobody else can
write to, there until `load` returns. Machine code beside it, in `triton`, may be loaded for that
reason and no other.

Left out: what the ids mean (`lm.py`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol, cast, get_args

from conductor.errors import ConductorError, PlanError, StartError
from conductor.plan.automaton import Automaton
from conductor.settings import Device, Dtype

RUNNERS_GROUP = "conductor.runners"
DEFAULT_RUNNER = "torch"


@dataclass(frozen=True)
class RunnerSettings:
    """How a runner uses the machine. Raises `StartError` for values that cannot work."""

    device: Device = "auto"
    """`auto` takes a GPU if one is there."""
    dtype: Dtype = "auto"
    """Of weights and cache: bfloat16 on a GPU, float32 on a CPU."""
    threads: int = 2
    """Of the CPU, for one step of the model."""
    max_running: int = 8
    """Plans written at once; the torch runner never writes more than 16."""
    max_waiting: int = 128
    """Plans that may wait for that; a further one is told `EngineBusy`."""
    cache_tokens: int = 16_384
    """Keys and values that are kept: prompts and plans of all running requests together."""
    prefill_tokens: int = 512
    """Most prompt tokens in one step, so that a long prompt does not hold up what runs."""
    steps_a_launch: int | None = None
    """Tokens of each plan that the device writes before it is looked at again. 0: the host chooses
    token by token. None: 8 on a GPU, 0 on a CPU."""

    def __post_init__(self) -> None:
        for name, known in (("device", get_args(Device)), ("dtype", get_args(Dtype))):
            if getattr(self, name) not in known:
                raise StartError(f"the runner's {name} must be one of {', '.join(known)}")
        for name in ("threads", "max_running", "cache_tokens", "prefill_tokens"):
            if getattr(self, name) < 1:
                raise StartError(f"the runner's {name} must be at least 1")
        for name in ("max_waiting", "steps_a_launch"):
            if (getattr(self, name) or 0) < 0:
                raise StartError(f"the runner's {name} must be at least 0")


@dataclass(frozen=True)
class Wanted:
    """One plan to be written. The prompt is `prefix` and `rest`, both as token ids."""

    prefix: tuple[int, ...]
    """Equal for many requests: its keys and values are computed once."""
    rest: tuple[int, ...]
    automaton: Automaton
    max_tokens: int
    """Most tokens to write, forced ones included; what is longer ends without an end token."""
    temperature: float = 1.0
    """Of the distribution that is drawn from and that log-probabilities are told of."""
    seed: int | None = None
    """None: the likeliest token each time. Else drawn, the same for the same seed."""


@dataclass(frozen=True, slots=True)
class Token:
    """One written token."""

    id: int
    log_prob: float
    """Natural logarithm of its chance among the allowed tokens; 0 for a forced one."""
    forced: bool
    """Nothing else could be written, so the model was not asked."""


class EngineBusy(PlanError):
    """More plans are under way than may wait: another engine should plan this one."""


class RunnerFailed(ConductorError):
    """The runner broke while it wrote this plan. Names the kind of error, never its text."""


class RunnerLost(RunnerFailed):
    """The same, and it will write no plan any more: its device answers nothing until the process
    has ended, as a GPU does after a fault in a kernel."""


class Runner(Protocol):
    """Holds one checkpoint. Called from one event loop, many times at once."""

    @property
    def vocabulary(self) -> int:
        """How many tokens its model knows."""

    @property
    def at_once(self) -> int:
        """How many plans may be under way, those that wait included."""

    def write(self, wanted: Wanted) -> AsyncGenerator[Token, None]:
        """The tokens of a plan, as they come; ends after an end token or `max_tokens`. Whoever
        leaves it before its end closes it, which frees all that it holds.

        Raises `EngineBusy`, `PlanError` when the prompt is too long for the model or the cache,
        and `RunnerFailed`.
        """

    def close(self) -> None:
        """End what runs, with `RunnerFailed`, and free everything. May be called twice."""


LoadRunner = Callable[[Path, RunnerSettings], Runner]
"""Raises `StartError` when the checkpoint in that folder cannot be run here."""


def find_runner(name: str = DEFAULT_RUNNER) -> LoadRunner:
    """The runner of that name. Raises `StartError` when it is not installed, offered twice, or
    something that it needs is missing."""
    offered = entry_points(group=RUNNERS_GROUP)
    found = list(offered.select(name=name))
    if len(found) != 1:
        names = ", ".join(sorted(set(offered.names))) or "none is installed"
        problem = "is offered by more than one package" if found else "is not installed"
        raise StartError(f"the runner {name!r} of language models {problem}; there are: {names}")
    return _imported(found[0])


def _imported(entry: EntryPoint) -> LoadRunner:
    try:
        return cast(LoadRunner, entry.load())
    except ModuleNotFoundError as error:
        raise StartError(
            f"the runner {entry.name!r} needs {error.name}: install conductor-appliance[lm] and a "
            "build of torch (docs/decisions/0015-two-locks-for-torch.md)"
        ) from None
