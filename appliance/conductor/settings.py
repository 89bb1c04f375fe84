"""What `appliance.yaml` says, as frozen records. Times in seconds, sizes in bytes, money in USD.

The defaults here are the ones the file has; `appliancefile.py` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from conductor.core import Preference, SecretRef
from conductor.labels import Label

Mode = Literal["connected", "local-only"]
LogFormat = Literal["json", "console"]
LogLevel = Literal["debug", "info", "warning", "error"]

MAX_COST_WEIGHT = 1000.0
"""At so much a tenth of a cent outweighs every difference in quality: more says nothing more."""


@dataclass(frozen=True)
class Paths:
    """Directories, absolute. `run` holds the Unix sockets, and is relative to the working directory
    where only that is short enough for them; `models` holds the model files. `published` is what
    `serve` shows the other processes where these have accounts of their own: policies that were
    put in force, and the public permit key; by default it is `state`."""

    state: Path
    run: Path
    models: Path
    audit: Path
    published: Path

    @property
    def permit_key(self) -> Path:
        """What `serve` signs permits with."""
        return self.state / "permits" / "permit.key"

    @property
    def permit_public(self) -> Path:
        """What egress checks them with."""
        return self.published / "permits" / "permit.pub"

    @property
    def audit_key(self) -> Path:
        """The folder of the key that seals the audit log: never inside the log's own."""
        return self.state / "audit-key"

    @property
    def feedback(self) -> Path:
        """The folder of judged answers, if any are kept."""
        return self.state / "feedback"

    @property
    def admin_socket(self) -> Path:
        """Where administrators ask `serve`: `conductor policy` and `conductor approvals`."""
        return self.run / "admin.sock"

    @property
    def planner_socket(self) -> Path:
        """Where `serve` asks the planner process."""
        return self.run / "planner.sock"

    @property
    def egress_socket(self) -> Path:
        """Where `serve` asks the egress process."""
        return self.run / "egress.sock"

    def worker_socket(self, worker_id: str) -> Path:
        """Of an embedded worker."""
        return self.run / "workers" / f"{worker_id}.sock"


@dataclass(frozen=True)
class Api:
    """Where applications and administrators connect.

    `max_in_flight_body_bytes` bounds the bodies of all requests together, so that many large ones
    cannot fill the memory. `hold_s` is how long a stream waits for its first content before it is
    opened with comments; `drain_s` how long a stopping appliance lets answers finish.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    unix_socket: Path | None = None
    admin_host: str = "127.0.0.1"
    admin_port: int = 8081
    max_body_bytes: int = 32 * 1024 * 1024
    max_in_flight_body_bytes: int = 256 * 1024 * 1024
    hold_s: float = 15.0
    drain_s: float = 30.0


@dataclass(frozen=True)
class Key:
    """An application's key: exactly one of `secret` and `sha256` (of the key, hex) is given.

    `models` None means all. Only a key that may `declare_labels` is believed about labels, and
    even then they only raise. `default_label` takes the place of the policy's for this key. Only
    one that may `set_cost_weight` says per request what quality is worth.
    """

    id: str
    secret: SecretRef | None
    sha256: str | None
    models: tuple[str, ...] | None = None
    declare_labels: bool = False
    default_label: Label | None = None
    budget_usd_per_day: float | None = None
    max_in_flight: int = 256
    set_cost_weight: bool = False


@dataclass(frozen=True)
class RequestLimits:
    """Hard limits of one request, over all its rounds, steps, retries and fallbacks; `max_steps`
    alone is for one plan."""

    max_steps: int = 5
    max_calls: int = 8
    max_tokens: int = 1_000_000
    max_cost_usd: float = 1.0
    total_s: float = 600.0
    max_rounds: int = 3


@dataclass(frozen=True)
class CostWeights:
    """What engines are told of cost, by the preference that a model name stands for: the quality,
    from 0 to 1, that one USD per 1,000 requests must bring. 0 asks for quality alone."""

    thrifty: float = 0.3
    balanced: float = 0.03
    quality: float = 0.01

    def of(self, preference: Preference) -> float:
        """The weight that stands for a preference."""
        weights: dict[Preference, float] = {
            "thrifty": self.thrifty,
            "balanced": self.balanced,
            "quality": self.quality,
        }
        return weights[preference]


Device = Literal["auto", "cpu", "cuda"]
Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class LmConfig:
    """How the engine `lm` runs its language model, and chooses tokens: see `planner/lm_runner.py`
    and `planner/lm.py`, whose values these are."""

    runner: str = "torch"
    device: Device = "auto"
    dtype: Dtype = "auto"
    threads: int = 2
    max_running: int = 8
    max_waiting: int = 128
    cache_tokens: int = 16_384
    max_tokens: int = 512
    temperature: float = 1.0
    sample: bool = False


@dataclass(frozen=True)
class PlannerConfig:
    """Which plan engine runs, how long it may think about one plan before the default plan is
    taken, and what it is told of cost.

    For the engine `pocket`: `bundle` None is the shipped one; one at a path counts only if one of
    the public keys in `trusted_keys` has signed it.
    """

    engine: str = "default"
    bundle: Path | None = None
    trusted_keys: tuple[Path, ...] = ()
    timeout_s: float = 2.0
    cost_weight: CostWeights = CostWeights()
    lm: LmConfig = LmConfig()


@dataclass(frozen=True)
class EgressConfig:
    """`permit_ttl_s`: how long a permit opens the way out."""

    permit_ttl_s: float = 30.0


@dataclass(frozen=True)
class ScanConfig:
    """Bodies over `inline_bytes` are scanned beside the event loop, in `processes` processes.

    What takes longer than `timeout_s`, or holds more text than `max_text_bytes`, is `unscanned`.
    """

    inline_bytes: int = 16 * 1024
    processes: int = 1
    timeout_s: float = 10.0
    max_text_bytes: int = 32 * 1024 * 1024


@dataclass(frozen=True)
class AuditConfig:
    """`max_batch`: records that share one fsync; `checkpoint_s`: how often what was recorded is
    signed; `retention_days`: how long records are kept."""

    max_batch: int = 64
    checkpoint_s: float = 60.0
    retention_days: int = 400


@dataclass(frozen=True)
class FeedbackConfig:
    """Whether questions are written down with what their callers say of the answers.

    `max_label` is the most sensitive label of a question, and of its answer, that may be; None:
    none are. An answer can be judged for `wait_s`; until then it is held in memory, all of them in
    `max_waiting_bytes`. On disk are at most `max_files` of `max_file_bytes`.
    """

    max_label: Label | None = None
    wait_s: float = 3600.0
    max_waiting_bytes: int = 32 * 1024 * 1024
    max_file_bytes: int = 64 * 1024 * 1024
    max_files: int = 8


@dataclass(frozen=True)
class LogConfig:
    """`json` for machines, `console` for a terminal."""

    format: LogFormat = "json"
    level: LogLevel = "info"


@dataclass(frozen=True)
class Appliance:
    """All of `appliance.yaml`."""

    mode: Mode
    paths: Paths
    api: Api
    keys: tuple[Key, ...]
    limits: RequestLimits = RequestLimits()
    planner: PlannerConfig = PlannerConfig()
    egress: EgressConfig = EgressConfig()
    scan: ScanConfig = ScanConfig()
    audit: AuditConfig = AuditConfig()
    log: LogConfig = LogConfig()
    feedback: FeedbackConfig = FeedbackConfig()
