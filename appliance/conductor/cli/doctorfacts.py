"""Gathering what `conductor doctor` judges, where it takes the appliance's own rooms to know.

Looks, and changes nothing. Each part that cannot be looked at is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from conductor.box.airgap import AIR_GAPPED, read_marker
from conductor.box.certificates import certificates
from conductor.box.command import run
from conductor.box.facts import (
    AuditFacts,
    BundleFacts,
    Clock,
    Credential,
    Facts,
    Listener,
    ModeFacts,
    PolicyFacts,
    WorkerFacts,
)
from conductor.box.machine import built, disks, gpu, memory, synchronised
from conductor.box.modeswitch import lacking
from conductor.box.permissions import SEALED, exposed
from conductor.box.sealing import opens
from conductor.box.stopping import drains
from conductor.box.units import drift
from conductor.cli.doctorasks import listeners, ports, reached, running
from conductor.cli.installed import Installed, latest
from conductor.cli.setupfiles import LISTEN_DROPIN
from conductor.core import RemoteEndpoint, SecretRef, TcpEndpoint, Worker
from conductor.errors import AuditError, BundleError, ConductorError, ConfigError, StartError

if TYPE_CHECKING:
    from conductor.audit.checkpoint import Note
    from conductor.audit.verify import Report
    from conductor.config import Site
    from conductor.settings import Paths

GPU_ENGINES = frozenset({"lm"})
ACCOUNT = "conductor"
"""Of the API, which connects to the workers."""
KEPT = ("vendor", SEALED)
"""Folders of credentials: systemd calls each file FOLDER_NAME (`conductor-egress.service`)."""


def gathered(here: Installed, *, verify: bool = True) -> Facts:
    """Everything. `verify` False leaves the audit log's contents out: a long one takes its time."""
    place, site = here.place, here.site
    version = place.versions / "current"
    packaged = version.is_symlink()
    basic = Facts(
        root=os.geteuid() == 0,
        faults=here.faults,
        mode=_mode(here, packaged=packaged),
        certificates=certificates(place),
        units=drift(place, air_gapped=read_marker(here.directory).mode == AIR_GAPPED),
        installed=version.readlink().name if packaged else "",
        dangling=packaged and not version.exists(),
    )
    return basic if site is None else _with_site(basic, here, site, verify=verify)


def _with_site(basic: Facts, here: Installed, site: Site, *, verify: bool) -> Facts:
    from dataclasses import replace

    from conductor.cli.models import missing_models

    place, paths = here.place, site.appliance.paths
    lm = site.appliance.planner.engine in GPU_ENGINES
    records = latest(paths.audit, "start"), latest(paths.audit, "checkpoint")
    newest = max((str(one["ts"]) for one in records if one), default=None)
    return replace(
        basic,
        keys=tuple(key.id for key in site.appliance.keys),
        set_aside=site.set_aside,
        drains=drains(place, site.appliance.api.drain_s) if basic.installed else (),
        gpu=gpu(place, wanted=lm and site.appliance.planner.lm.device != "cpu", run=run),
        disks=disks(_places(paths)),
        memory=memory(place, _model_files(site)),
        clock=Clock(_now(), _time(newest), built(Path(__file__)), synchronised(place)),
        exposed=exposed(place, paths.state) if basic.installed else (),
        credentials=tuple(_credentials(here, site)),
        policy=_policy(here, paths),
        bundle=_bundle(site),
        missing_models=tuple(missing_models(site)),
        workers=tuple(
            _worker(here, worker, packaged=bool(basic.installed)) for worker in site.workers
        ),
        audit=_audit(paths) if verify else None,
        listeners=_listeners(here, paths) if place.running and basic.installed else (),
        running=running(paths, records[0]) if place.running else None,
    )


def _listeners(here: Installed, paths: Paths) -> tuple[Listener, ...]:
    dropin = here.place.overrides / LISTEN_DROPIN
    by_tcp = ports(here.place, dropin, run)
    return (*listeners(paths, by_tcp=dropin.exists()), *by_tcp)


def _now() -> datetime:
    return datetime.now(UTC)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _mode(here: Installed, *, packaged: bool) -> ModeFacts:
    marker = read_marker(here.directory)
    said = latest(here.site.appliance.paths.audit, "attestation") if here.site else None
    missing: list[str] = []
    if packaged and marker.mode == AIR_GAPPED:
        with suppress(StartError):
            missing = lacking(here.place)
    # What was said before the latest switch says nothing of the gap that it has made.
    since = said is not None and said.get("mode_number") == marker.number
    return ModeFacts(
        mode=marker.mode,
        damaged=marker.damaged,
        lacking=tuple(missing),
        verdict=str(said.get("verdict")) if said and since else "",
        reasons=tuple(map(str, said.get("reasons", ()))) if said and since else (),
    )


def _places(paths: Paths) -> dict[str, Path]:
    return {"audit log": paths.audit, "state": paths.state, "models": paths.models}


def _model_files(site: Site) -> list[Path]:
    from conductor.cli.models import needed_models
    from conductor.workers.catalogue import load_catalogue
    from conductor.workers.fetch import locate

    catalogue, folder = load_catalogue(), site.appliance.paths.models
    found = [locate(folder, catalogue[name]) for name in needed_models(site)]
    return [path for path in found if path is not None]


def _credentials(here: Installed, site: Site) -> Iterator[Credential]:
    refs = [w.endpoint.key for w in site.workers if isinstance(w.endpoint, RemoteEndpoint)]
    refs += [key.secret for key in site.appliance.keys if key.secret is not None]
    for ref in refs:
        path = _secret_path(here, ref)
        if path is not None and (state := _state(path)):
            looked = state == "good" and path.parent.name == SEALED and here.place.running
            foreign = looked and os.geteuid() == 0 and not opens(run, ref.name, path)
            yield Credential(str(ref), "foreign" if foreign else state)


def _secret_path(here: Installed, ref: SecretRef) -> Path | None:
    """Where a secret lies, if it lies in a file. A file may be relative to the configuration's
    root, which has been worked out by then."""
    if ref.scheme == "file":
        return here.at(Path(ref.name))
    folder, _, name = ref.name.partition("_")
    if ref.scheme == "credential" and folder in KEPT:
        return here.directory / "credentials" / folder / name
    return None


def _state(path: Path) -> str:
    """`good`, `missing`, ...; "" where we may not look."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return "missing"
    except OSError:
        return ""
    if stat.S_IMODE(seen.st_mode) & 0o077 and path.parent.name != SEALED:
        return "readable"
    return "good" if seen.st_size else "empty"


def _policy(here: Installed, paths: Paths) -> PolicyFacts:
    from conductor.activation.store import Store
    from conductor.config import POLICY
    from conductor.strictyaml import source
    from conductor.strictyaml.faults import Faults

    held = Store(paths.published).held()
    on_disk = source.read(here.directory / POLICY, Faults()).sha256
    differs = held.copy is not None and held.copy.sha256 != on_disk
    return PolicyFacts(held.condition, held.highest, differs)


def _bundle(site: Site) -> BundleFacts | None:
    """Whether the planner's bundle would be taken: its signature, its files, their hashes."""
    from conductor.planner.trust import SHIPPED_NAME, resolve

    planner = site.appliance.planner
    if planner.engine == "default":
        return None
    try:
        resolve(planner.bundle or SHIPPED_NAME, planner.trusted_keys)
    except BundleError as error:
        return BundleFacts(planner.engine, error.reason, str(error))
    except ConfigError as error:
        return BundleFacts(planner.engine, "key", str(error))
    return BundleFacts(planner.engine)


def _worker(here: Installed, worker: Worker, *, packaged: bool) -> WorkerFacts:
    if isinstance(worker.endpoint, RemoteEndpoint):
        return WorkerFacts(worker.id, "remote")
    way = "embedded" if worker.embedded_model else "unix"
    if isinstance(worker.endpoint, TcpEndpoint):
        way = "tcp"
    wanted = (
        here.place.overrides / "conductor.target.wants" / f"conductor-worker@{worker.id}.service"
    )
    enabled = way != "embedded" or not packaged or os.path.lexists(wanted)
    how = reached(worker, ACCOUNT) if here.place.running else "unknown"
    heard = {"open": True, "silent": False}.get(how)
    return WorkerFacts(worker.id, way, heard, enabled, closed=how == "closed")


def _audit(paths: Paths) -> AuditFacts:
    from conductor.audit import anchor, keys
    from conductor.audit.segments import segments
    from conductor.audit.verify import verify

    try:
        kept: list[Note] = []
        with suppress(AuditError):  # not sealed yet, or not long enough
            kept = [anchor.read(paths.audit_key / "checkpoint")]
        if not segments(paths.audit):
            return AuditFacts("cut", "all of it is gone") if kept else AuditFacts("absent")
        key = keys.load(paths.audit_key) if (paths.audit_key / "audit.key").exists() else None
        return _judged(verify(paths.audit, key=key, anchors=kept))
    except (ConductorError, OSError) as error:
        return AuditFacts("unreadable", str(error))


def _judged(report: Report) -> AuditFacts:
    back = report.clock_set_back
    if report.tampering is not None:
        fault = report.tampering
        where = f"record {fault.seq} ({fault.segment}, line {fault.line})"
        return AuditFacts("tampered", f"{where}: {fault.explanation}", back)
    if not report.ok:
        states = ", ".join(f"{one.size} records: {one.state}" for one in report.anchors)
        return AuditFacts("cut", states or "its key is another one", back)
    return AuditFacts("whole" if report.sealing is not None else "unsealed", "", back)
