"""The shared nouns: what every room talks about. Imports no sibling but `labels`.

Left out on purpose: behaviour. Parsing lives in `plan/`, deciding in `policy/`, calling in
`workers/`, running in `run/`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

from conductor.labels import Clearance

Kind = Literal["local", "remote"]
Body = dict[str, Any]
"""A decoded JSON object: a chat completion request, an answer, or one streamed chunk."""


# -- destinations and workers -----------------------------------------------------------------


@dataclass(frozen=True)
class Destination:
    """A place data can go to, with the facts that rules may ask about. Written in `policy.yaml`."""

    id: str
    kind: Kind
    clearance: Clearance
    facts: Mapping[str, str | bool]
    """`vendor`, `region` and further named facts. `kind` is always among them."""
    position: str
    """`file:line:col` of its definition."""


@dataclass(frozen=True)
class Price:
    """USD per million tokens."""

    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0

    @property
    def free(self) -> bool:
        """Whether no use of it costs anything."""
        return not (self.input_usd_per_mtok or self.output_usd_per_mtok)

    def cost_usd(self, usage: Usage) -> float:
        """What the usage costs, in USD."""
        return (
            usage.prompt_tokens * self.input_usd_per_mtok
            + usage.completion_tokens * self.output_usd_per_mtok
        ) / 1e6


CardSource = Literal["measured", "declared"]
VERBOSITY = (0.01, 100.0)
"""Lowest and highest `Card.verbosity`."""


@dataclass(frozen=True)
class Card:
    """What is known of a worker's ability. Planners see cards, never names.

    `skill` maps a domain (`general`, `code`, `math`, ...) to the chance of a right answer, 0 to 1.
    """

    skill: Mapping[str, float]
    output_tokens_per_s: float
    source: CardSource
    verbosity: float = 1.0
    """How long its answers are, against the mean of the workers that an engine was trained on."""


@dataclass(frozen=True)
class WorkerLimits:
    """Back-pressure, window and the four timers of one worker. Times in seconds."""

    max_in_flight: int = 8
    max_queued: int = 64
    queue_wait_s: float = 1.0
    context_tokens: int = 8192
    max_output_tokens: int = 4096
    connect_s: float = 5.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0
    total_s: float = 600.0


@dataclass(frozen=True)
class UnixEndpoint:
    """An OpenAI-compatible server behind a Unix socket."""

    path: Path
    base_path: str = "/v1"


@dataclass(frozen=True)
class TcpEndpoint:
    """An OpenAI-compatible server on this machine. `host` is a literal loopback address."""

    host: str
    port: int
    base_path: str = "/v1"


@dataclass(frozen=True)
class RemoteEndpoint:
    """A vendor that only the egress process calls. `serve` never reads the key reference."""

    provider: str
    """litellm provider name, `openai` for anything OpenAI-compatible."""
    base_url: str | None
    key: SecretRef


@dataclass(frozen=True)
class SecretRef:
    """Where a secret stands: `env:NAME`, `file:/path` or `credential:name`. Never the secret."""

    scheme: Literal["env", "file", "credential"]
    name: str

    def __str__(self) -> str:
        return f"{self.scheme}:{self.name}"


@dataclass(frozen=True)
class Worker:
    """One model that steps can be given to."""

    id: str
    model: str
    """The name its server knows it by."""
    destination: Destination
    clearance: Clearance
    """Effective: the destination's, narrowed by the worker's own if it states one."""
    endpoint: UnixEndpoint | TcpEndpoint | RemoteEndpoint
    card: Card
    price: Price = Price()
    limits: WorkerLimits = WorkerLimits()
    embedded_model: str | None = None
    """Catalogue id when `conductor worker` runs it, else None."""
    threads: int = 1
    """CPU threads for an embedded model."""

    @property
    def remote(self) -> bool:
        return self.destination.kind == "remote"


# -- scanning and judging ---------------------------------------------------------------------


class Likelihood(IntEnum):
    """How sure a detector is, in words that a policy may use."""

    VERY_UNLIKELY = 1
    UNLIKELY = 2
    POSSIBLE = 3
    LIKELY = 4
    VERY_LIKELY = 5

    @property
    def word(self) -> str:
        """`very_unlikely` to `very_likely`."""
        return self.name.lower()

    @classmethod
    def of(cls, word: str) -> Likelihood:
        """The likelihood of a word; raises `KeyError` for any other."""
        return cls[word.upper()]


@dataclass(frozen=True)
class Finding:
    """That a detector fired, how often and in which view of the text. Never what it saw.

    A scan holds one for each detector and likelihood.
    """

    detector: str
    count: int
    view: str = "raw"
    likelihood: Likelihood = Likelihood.VERY_LIKELY


@dataclass(frozen=True)
class Scan:
    """What scanning a body gave. `unscanned` lists why parts could not be read; empty: all was."""

    findings: tuple[Finding, ...]
    text_bytes: int
    unscanned: tuple[str, ...] = ()


ObligationKind = Literal["pseudonymise", "redact", "approve", "no_tools", "zero_retention"]


@dataclass(frozen=True, order=True)
class Obligation:
    """What must be done to data before an allow counts. `by` is the declassifier that does it."""

    kind: ObligationKind
    by: str = ""

    def __str__(self) -> str:
        return f"{self.kind}:{self.by}" if self.by else self.kind


@dataclass(frozen=True)
class Shadow:
    """A rule in shadow that would have applied. It has no effect."""

    rule: str
    position: str
    effect: Literal["allow", "deny"]


@dataclass(frozen=True)
class Verdict:
    """Policy's answer for one destination. `rule` and `position` name what decided."""

    allow: bool
    """These bytes, so labelled, may go there now."""
    rule: str
    position: str
    reason: str
    error: bool = False
    """True when a fact was missing, so that the condition was unknown."""
    promise: tuple[Obligation, ...] = ()
    """Without `allow`: they may go there once all of these are carried out, judged anew then."""
    shadow: tuple[Shadow, ...] = ()


# -- running ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """Tokens, as the worker reported them; `estimated` when it did not (an aborted stream)."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.estimated or other.estimated,
        )


class Failure(StrEnum):
    """Every way in which calling a worker can fail. `run/failover.py` lists which may fail over."""

    REFUSED = "refused"  # nobody listens, or no such socket
    CONNECT_TIMEOUT = "connect_timeout"
    FIRST_BYTE_TIMEOUT = "first_byte_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    CUT = "cut"  # the connection ended before the answer did
    MALFORMED = "malformed"  # an answer that is no chat completion
    SERVER_ERROR = "server_error"  # 5xx
    LOADING = "loading"  # 503 while the model loads
    OVERLOADED = "overloaded"  # our queue for it is full, or it said so
    RATE_LIMITED = "rate_limited"  # 429
    BAD_REQUEST = "bad_request"  # 4xx that the client caused
    CONTEXT_LENGTH = "context_length"
    AUTH = "auth"  # the worker refuses our key
    PERMIT = "permit"  # egress refuses our permit
    OPEN = "open"  # the breaker is open: not even tried
    EGRESS_DOWN = "egress_down"  # the egress process itself cannot be reached


@dataclass(frozen=True)
class Call:
    """One attempt at one worker: exactly these bytes, nothing else of the client's request."""

    request_id: str
    body: bytes
    """A canonical JSON chat completion request; `permit` covers exactly these bytes."""
    stream: bool
    permit: str | None = None
    """For a remote worker only: see `egress/permit.py`."""
    total_s: float = 600.0
    """Seconds left for the whole call; the worker's own `limits.total_s` may be shorter."""


class Reply(Protocol):
    """An answer that has begun: its first byte has come, its status was 200."""

    async def json(self) -> Body:
        """The whole plain answer. Raises `errors.WorkerError`."""

    def events(self) -> AsyncGenerator[Body, None]:
        """The chunks of a streamed answer; ends only after the upstream's `[DONE]`, or after a
        finish reason for every choice. Raises `errors.WorkerError`, `CUT` for any earlier end.
        Whoever leaves it before its end closes it."""


class Caller(Protocol):
    """The seam to the outside of `serve`: `workers/http.py`, or a function in a test."""

    def call(self, worker: Worker, call: Call) -> AbstractAsyncContextManager[Reply]:
        """Send one attempt. Leaving the context, for whatever reason, aborts the upstream call."""


# -- planning ---------------------------------------------------------------------------------

Preference = Literal["thrifty", "balanced", "quality"]


@dataclass(frozen=True)
class Candidate:
    """A worker as the planner sees it: anonymous, by its place in `PlanRequest.candidates`."""

    card: Card
    price: Price
    local: bool
    context_tokens: int
    veiled: bool = False
    """It may see only what `redact` made of the question. Then `PlanRequest.flow` is set."""


@dataclass(frozen=True)
class Heard:
    """The answer of a step of an earlier round, as a planner is shown it."""

    step: int
    """Its number, counted over all rounds of the request."""
    worker: int | None
    """Ordinal of who answered; None for a built-in, or one that is no candidate any more."""
    answer: str
    """Empty when the step failed at every worker."""
    output_tokens: int


@dataclass(frozen=True)
class Flow:
    """Who may be shown which data, with the names of neither: each label that a step of the next
    round can have is a class, numbered from 0. Written by `flow/classes.py`, read by
    `plan/mask.py`."""

    question: int
    control: int
    """Of words that the planner writes, who was shown the question and all that was heard."""
    heard: tuple[int, ...]
    """One class for each of `PlanRequest.heard`."""
    joins: tuple[tuple[int, ...], ...]
    """`joins[a][b]` is the class of what was made from data of both."""
    redacted: tuple[int, ...]
    """What `redact` makes of each class."""
    sees: tuple[frozenset[int], ...]
    """For each class the ordinals of the candidates that may be shown it."""


@dataclass(frozen=True)
class PlanRequest:
    """What a plan engine is asked. Only routable workers are among the candidates, and only those
    that policy permits, if need be after a redaction (`Candidate.veiled`)."""

    request_id: str
    question: str
    candidates: tuple[Candidate, ...]
    prompt_tokens: int
    """Estimate for the whole conversation, which may be far longer than `question`."""
    preference: Preference = "balanced"
    max_steps: int = 5
    one_step: bool = False
    """Tools, schemas, logprobs or n > 1: the answer must come from a single worker."""
    cost_weight: float = 0.03
    """Quality that one USD per 1,000 requests is worth, quality from 0 to 1: the lambda of
    utility = quality - lambda x cost. 0 asks for quality alone."""
    heard: tuple[Heard, ...] = ()
    """What the steps of earlier rounds answered, in their order. Empty in a first round."""
    rounds_left: int = 0
    """Rounds that may follow this one. 0: this plan is the last, nobody looks at its answers."""
    calls_left: int = 8
    """Calls to workers that the request may still make, this round included."""
    may_redact: bool = False
    """Whether a plan may use `redact`."""
    flow: Flow | None = None
    """None: every candidate may see everything."""
