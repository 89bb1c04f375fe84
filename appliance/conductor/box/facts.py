"""What `conductor doctor` has gathered, as plain values: `findings.py` judges them.

None, or an empty tuple, stands for what was not or could not be looked at: nothing is found in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Gpu:
    """`present`: there are device nodes of an NVIDIA GPU. `wanted`: the planner is to run on one.
    `opened`: its unit lets the planner at them."""

    present: bool = False
    wanted: bool = False
    opened: bool = False
    driver: str = ""
    cuda: bool = False
    """The driver's CUDA library is there."""
    fault: str = ""
    """Why CUDA does not start with it; "" where it does, or nobody tried."""


@dataclass(frozen=True)
class Disk:
    what: str
    path: str
    free_bytes: int
    total_bytes: int
    free_inodes: int | None = None


@dataclass(frozen=True)
class Memory:
    total_bytes: int
    available_bytes: int
    models_bytes: int = 0
    """Of the model files that this machine is to load."""


@dataclass(frozen=True)
class Listener:
    """A socket that should be there. `answers` None: nobody asked."""

    path: str
    exists: bool
    answers: bool | None = None
    open_to_all: bool = False


@dataclass(frozen=True)
class Clock:
    now: datetime
    last_record: datetime | None = None
    program_built: datetime | None = None
    synchronised: bool | None = None


@dataclass(frozen=True)
class Exposed:
    """A file that somebody may change or read who should not."""

    path: str
    why: str
    """`owner`, `group`, `world` (may write), `readable`."""


@dataclass(frozen=True)
class Credential:
    """A secret that is configured. `state`: `good`, `missing`, `readable`, `empty`, `foreign`."""

    reference: str
    state: str


@dataclass(frozen=True)
class Certificate:
    path: str
    expires: datetime | None
    """None: it is no certificate, or cannot be read."""


@dataclass(frozen=True)
class PolicyFacts:
    condition: str
    highest: int = 0
    candidate_differs: bool = False


@dataclass(frozen=True)
class BundleFacts:
    engine: str
    refusal: str = ""
    message: str = ""


@dataclass(frozen=True)
class WorkerFacts:
    worker: str
    way: str
    """`embedded`, `unix`, `tcp`."""
    reached: bool | None = None
    unit_enabled: bool = True
    closed: bool = False
    """Somebody may listen, but the API's account may not connect."""


@dataclass(frozen=True)
class AuditFacts:
    """`condition`: `whole`, `absent`, `tampered`, `cut`, `unreadable`, `unsealed`."""

    condition: str
    detail: str = ""
    clock_set_back: int = 0


@dataclass(frozen=True)
class UnitFacts:
    """A unit that is not as shipped. `how`: `changed`, `missing`, `replaced`, `masked`, `drop-in`,
    `weakened`."""

    path: str
    how: str


@dataclass(frozen=True)
class Drain:
    """`drain_s` is what running requests may take once a service stops, `stop_s` when systemd kills
    it."""

    unit: str
    drain_s: float
    stop_s: float


@dataclass(frozen=True)
class Running:
    """What the running appliance says of itself."""

    ready: bool
    reasons: tuple[str, ...]
    keys: tuple[str, ...]
    build: str = ""


@dataclass(frozen=True)
class ModeFacts:
    mode: str
    damaged: bool = False
    lacking: tuple[str, ...] = ()
    verdict: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Everything. `root`: whether we could look everywhere."""

    root: bool
    faults: tuple[str, ...] = ()
    """Of the configuration."""
    keys: tuple[str, ...] = ()
    """Ids of API keys in the configuration."""
    mode: ModeFacts | None = None
    set_aside: tuple[str, ...] = ()
    """Ids of remote workers that the air gap hides."""
    gpu: Gpu | None = None
    disks: tuple[Disk, ...] = ()
    memory: Memory | None = None
    listeners: tuple[Listener, ...] = ()
    clock: Clock | None = None
    exposed: tuple[Exposed, ...] = ()
    credentials: tuple[Credential, ...] = ()
    certificates: tuple[Certificate, ...] = ()
    policy: PolicyFacts | None = None
    bundle: BundleFacts | None = None
    missing_models: tuple[str, ...] = ()
    workers: tuple[WorkerFacts, ...] = ()
    audit: AuditFacts | None = None
    units: tuple[UnitFacts, ...] = ()
    drains: tuple[Drain, ...] = ()
    installed: str = ""
    """The version that is in force here."""
    dangling: bool = False
    """The link to it leads nowhere."""
    running: Running | None = None
    """None: it does not run, or we may not ask."""
