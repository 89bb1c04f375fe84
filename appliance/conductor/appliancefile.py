"""Reading `appliance.yaml` into the records of `settings.py`.

In two parts, because `workers.yaml` lies between them: where things are and listen, which the
workers need, and then keys and limits, which may name workers.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import cast, get_args

from conductor.audit.segments import MAX_BATCH
from conductor.labels import Label, Lattice
from conductor.plannerfile import read_planner
from conductor.policy.vocabulary import read_label
from conductor.process.unixsocket import MAX_PATH_BYTES
from conductor.secretrefs import read_ref
from conductor.settings import (
    Api,
    Appliance,
    AuditConfig,
    EgressConfig,
    FeedbackConfig,
    Key,
    LogConfig,
    LogFormat,
    LogLevel,
    Mode,
    Paths,
    RequestLimits,
    ScanConfig,
)
from conductor.strictyaml.values import Section, Unique, Value

_SOCKET_NAME_BYTES = 40
"""Room that a run directory should leave for the sockets in it; longer worker ids may need more."""

_KEY_ID = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_DAY_S = 86_400.0
_GIB = 2**30


@dataclass(frozen=True)
class Base:
    """What other files need of this one. `root`: where relative paths start."""

    mode: Mode
    root: Path
    paths: Paths
    api: Api


def read_base(root: Section) -> Base:
    """Mode, paths and listeners."""
    # In a file that cannot be read the mode stays "": workers must not be blamed for it.
    mode = root.choice("mode", get_args(Mode), "local-only" if root.readable else "")
    section = root.mapping("paths", optional=True)
    start = Path.cwd() / section.text("root", ".")
    state = start / section.text("state", "var/state")
    paths = Paths(
        state=state,
        run=_short(start / section.text("run", "var/run")),
        models=start / section.text("models", "var/models"),
        audit=start / section.text("audit", "var/audit"),
        published=start / section.text("published", str(state)),
    )
    section.done()
    return Base(cast(Mode, mode), start, paths, _api(root.mapping("api", optional=True), start))


def _short(run: Path) -> Path:
    """The run directory by a name that leaves room for sockets in it. In a deep directory that is
    the relative one: the processes of an appliance are started in the same place."""
    if len(bytes(run)) + _SOCKET_NAME_BYTES <= MAX_PATH_BYTES:
        return run
    return Path(os.path.relpath(run))


def read_appliance(
    root: Section, base: Base, lattice: Lattice | None, models: Collection[str]
) -> Appliance:
    """The rest of the file. `models` are the names that a key may be restricted to."""
    keys = _keys(root, base, lattice, models)
    planner = read_planner(root.mapping("planner", optional=True), base.root)
    section = root.mapping("egress", optional=True)
    egress = EgressConfig(_seconds(section, "permit_ttl_s", EgressConfig.permit_ttl_s, 300.0))
    section.done()
    section = root.mapping("audit", optional=True)
    audit = AuditConfig(
        max_batch=section.integer("max_batch", AuditConfig.max_batch, low=1, high=MAX_BATCH),
        checkpoint_s=section.number("checkpoint_s", AuditConfig.checkpoint_s, low=1, high=86_400),
        retention_days=section.integer(
            "retention_days", AuditConfig.retention_days, low=1, high=36_500
        ),
    )
    section.done()
    limits = _limits(root.mapping("limits", optional=True))
    scan = _scan(root.mapping("scan", optional=True))
    log = _log(root.mapping("log", optional=True))
    feedback = _feedback(root.mapping("feedback", optional=True), lattice)
    root.done()
    return Appliance(
        base.mode, base.paths, base.api, keys, limits, planner, egress, scan, audit, log, feedback
    )


def read_socket_path(value: Value, root: Path) -> Path:
    """A Unix socket's path, short enough for the kernel; relative ones stand below `root`."""
    path = root / value.text()
    if len(bytes(path)) > MAX_PATH_BYTES:
        value.fault("bad-value", f"a Unix socket's path has at most {MAX_PATH_BYTES} bytes")
    return path


def _seconds(section: Section, key: str, default: float, most: float = _DAY_S) -> float:
    return section.number(key, default, low=0.001, high=most)


def _api(section: Section, root: Path) -> Api:
    unix_socket = section.find("unix_socket")
    api = Api(
        host=_host(section, "host", Api.host),
        port=section.integer("port", Api.port, high=65_535),
        unix_socket=read_socket_path(unix_socket, root) if unix_socket else None,
        admin_host=_host(section, "admin_host", Api.admin_host),
        admin_port=section.integer("admin_port", Api.admin_port, high=65_535),
        max_body_bytes=section.integer("max_body_bytes", Api.max_body_bytes, low=1024, high=_GIB),
        max_in_flight_body_bytes=section.integer(
            "max_in_flight_body_bytes", Api.max_in_flight_body_bytes, low=1024, high=1024 * _GIB
        ),
        hold_s=section.number("hold_s", Api.hold_s, high=_DAY_S),
        drain_s=section.number("drain_s", Api.drain_s, high=_DAY_S),
    )
    if not ipaddress.ip_address(api.admin_host).is_loopback:
        message = "the admin listener stays on this machine: use 127.0.0.1 or ::1"
        section.fault("not-loopback", message, "admin_host")
    if api.port == api.admin_port != 0:
        section.fault("bad-value", "api and admin listeners need different ports", "admin_port")
    if api.max_in_flight_body_bytes < api.max_body_bytes:
        message = "all bodies together need at least max_body_bytes, or the largest never fits"
        section.fault("bad-value", message, "max_in_flight_body_bytes")
    section.done()
    return api


def _host(section: Section, key: str, default: str) -> str:
    """A literal address, so that nothing is looked up; `localhost` reads as 127.0.0.1."""
    text = section.text(key, default).replace("localhost", "127.0.0.1")
    try:
        if text and "%" not in text:
            return str(ipaddress.ip_address(text))
    except ValueError:
        pass
    if text:
        message = f"{key} must be an IP address of this machine, not a name"
        section.fault("bad-value", message, key)
    return default


def _keys(
    root: Section, base: Base, lattice: Lattice | None, models: Collection[str]
) -> tuple[Key, ...]:
    ids, secrets = Unique(), Unique()
    keys = []
    for item in root.items("keys", some=True):
        section = item.mapping()
        keys.append(_key(section, base, lattice, models))
        ids.check(section, "id", keys[-1].id)
        secrets.check(section, "secret", keys[-1].secret)
        secrets.check(section, "sha256", keys[-1].sha256)
    return tuple(keys)


def _key(section: Section, base: Base, lattice: Lattice | None, models: Collection[str]) -> Key:
    name = section.text("id", pattern=_KEY_ID, want="lower case letters, digits and '._-'")
    section.exactly_one("secret", "sha256")
    secret = section.find("secret")
    own = section.find("models")
    key = Key(
        id=name,
        secret=read_ref(secret, base.root) if secret else None,
        sha256=section.text("sha256", None, pattern=_SHA256, want="64 digits of lower case hex"),
        models=_names(own, models) if own else None,
        declare_labels=section.flag("declare_labels", Key.declare_labels),
        default_label=_label(section, lattice),
        budget_usd_per_day=section.number("budget_usd_per_day", None),
        max_in_flight=section.integer("max_in_flight", Key.max_in_flight, low=1, high=100_000),
        set_cost_weight=section.flag("set_cost_weight", Key.set_cost_weight),
    )
    section.done()
    return key


def _names(value: Value, models: Collection[str]) -> tuple[str, ...]:
    return tuple(item.choice(models, "unknown-model") for item in value.items())


def _label(section: Section, lattice: Lattice | None) -> Label | None:
    value = section.find("default_label")
    return read_label(value, lattice) if value and lattice else None


def _feedback(section: Section, lattice: Lattice | None) -> FeedbackConfig:
    label, own = section.find("max_label"), FeedbackConfig
    feedback = FeedbackConfig(
        max_label=read_label(label, lattice) if label and lattice else None,
        wait_s=section.number("wait_s", own.wait_s, low=1, high=_DAY_S),
        max_waiting_bytes=section.integer(
            "max_waiting_bytes", own.max_waiting_bytes, low=2**16, high=_GIB
        ),
        max_file_bytes=section.integer("max_file_bytes", own.max_file_bytes, low=2**16, high=_GIB),
        max_files=section.integer("max_files", own.max_files, low=1, high=1000),
    )
    if label is None and not section.empty:
        section.fault("missing-label", "without max_label no feedback is kept: name one")
    section.done()
    return feedback


def _limits(section: Section) -> RequestLimits:
    limits = RequestLimits(
        max_steps=section.integer("max_steps", RequestLimits.max_steps, low=1, high=5),
        max_calls=section.integer("max_calls", RequestLimits.max_calls, low=1, high=1000),
        max_tokens=section.integer("max_tokens", RequestLimits.max_tokens, low=1),
        max_cost_usd=section.number("max_cost_usd", RequestLimits.max_cost_usd),
        total_s=_seconds(section, "total_s", RequestLimits.total_s),
        max_rounds=section.integer("max_rounds", RequestLimits.max_rounds, low=1, high=5),
    )
    section.done()
    return limits


def _scan(section: Section) -> ScanConfig:
    scan = ScanConfig(
        inline_bytes=section.integer("inline_bytes", ScanConfig.inline_bytes, high=_GIB),
        processes=section.integer("processes", ScanConfig.processes, low=1, high=256),
        timeout_s=_seconds(section, "timeout_s", ScanConfig.timeout_s, 600.0),
        max_text_bytes=section.integer("max_text_bytes", ScanConfig.max_text_bytes, high=_GIB),
    )
    section.done()
    return scan


def _log(section: Section) -> LogConfig:
    form = section.choice("format", get_args(LogFormat), LogConfig.format)
    level = section.choice("level", get_args(LogLevel), LogConfig.level)
    section.done()
    return LogConfig(cast(LogFormat, form), cast(LogLevel, level))
