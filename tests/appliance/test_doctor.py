"""`conductor doctor`: each fact has its one finding, and what is well has none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from conductor.box.facts import (
    AuditFacts,
    BundleFacts,
    Certificate,
    Clock,
    Credential,
    Disk,
    Drain,
    Exposed,
    Facts,
    Gpu,
    Listener,
    Memory,
    ModeFacts,
    PolicyFacts,
    Running,
    UnitFacts,
    WorkerFacts,
)
from conductor.box.finding import Finding, exit_code
from conductor.box.findings import found

NOW = datetime(2026, 8, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
GIB = 2**30
CLOCK = Clock(NOW, NOW - DAY, NOW - 30 * DAY, synchronised=True)
RUNNING = Running(ready=True, reasons=(), keys=("app",), build="0.1.0")
WELL = Facts(
    root=True,
    keys=("app",),
    mode=ModeFacts("air-gapped", verdict="secure"),
    gpu=Gpu(present=True, wanted=True, opened=True, driver="570.1", cuda=True),
    disks=(Disk("audit log", "/var/lib/conductor/audit", 50 * GIB, 100 * GIB, 10**6),),
    memory=Memory(64 * GIB, 32 * GIB, GIB),
    listeners=(Listener("/run/conductor/api.sock", exists=True, answers=True),),
    clock=CLOCK,
    credentials=(Credential("credential:vendor_a", "good"),),
    certificates=(Certificate("/etc/conductor/tls/a.crt", NOW + 90 * DAY),),
    policy=PolicyFacts("active", 3),
    bundle=BundleFacts("pocket"),
    workers=(WorkerFacts("a", "unix", reached=True),),
    drains=(Drain("conductor.service", 30, 60),),
    audit=AuditFacts("whole"),
    installed="0.1.0",
    running=RUNNING,
)
DISK = WELL.disks[0]

CASES: list[tuple[dict[str, Any], str, str]] = [
    ({"root": False}, "not-root", "info"),
    ({"faults": ("workers.yaml:3:1: unknown-key: x",)}, "configuration-faulty", "error"),
    ({"mode": ModeFacts("air-gapped", damaged=True)}, "mode-damaged", "error"),
    ({"mode": ModeFacts("air-gapped", lacking=("/etc/x",))}, "mode-half-way", "error"),
    ({"mode": ModeFacts("air-gapped", verdict="degraded")}, "air-gap-open", "error"),
    ({"mode": ModeFacts("air-gapped")}, "air-gap-unattested", "warning"),
    ({"running": replace(RUNNING, ready=False, reasons=("air gap: x",))}, "not-ready", "error"),
    ({"gpu": Gpu(wanted=True)}, "gpu-missing", "error"),
    ({"gpu": Gpu(present=True, wanted=True, driver="5", cuda=True)}, "gpu-closed", "error"),
    ({"gpu": Gpu(present=True, opened=True)}, "gpu-needlessly-open", "warning"),
    ({"gpu": Gpu(present=True, wanted=True, opened=True)}, "gpu-driver", "error"),
    ({"gpu": replace(WELL.gpu or Gpu(), cuda=False)}, "cuda-missing", "error"),
    ({"gpu": replace(WELL.gpu or Gpu(), fault="x")}, "cuda-unusable", "error"),
    ({"set_aside": ("far",)}, "remote-set-aside", "info"),
    ({"drains": (Drain("conductor.service", 60, 60),)}, "drain-cut-short", "warning"),
    ({"disks": (replace(DISK, free_bytes=1000),)}, "disk-full", "error"),
    ({"disks": (replace(DISK, free_bytes=GIB),)}, "disk-low", "warning"),
    ({"disks": (replace(DISK, free_inodes=3),)}, "disk-inodes", "error"),
    ({"memory": Memory(8 * GIB, 4 * GIB, 8 * GIB)}, "memory-too-small", "error"),
    ({"memory": Memory(8 * GIB, 1000, GIB)}, "memory-low", "warning"),
    ({"clock": replace(CLOCK, last_record=NOW + DAY)}, "clock-behind-audit", "error"),
    ({"clock": replace(CLOCK, program_built=NOW + 9 * DAY)}, "clock-wrong", "error"),
    ({"clock": replace(CLOCK, synchronised=False)}, "clock-not-synchronised", "info"),
    ({"exposed": (Exposed("/opt/conductor/x", "world"),)}, "file-exposed", "error"),
    ({"credentials": (Credential("file:/k", "missing"),)}, "credential-missing", "error"),
    ({"credentials": (Credential("file:/k", "readable"),)}, "credential-readable", "error"),
    ({"credentials": (Credential("file:/k", "empty"),)}, "credential-empty", "error"),
    ({"credentials": (Credential("file:/k", "foreign"),)}, "credential-foreign", "error"),
    ({"certificates": (Certificate("/c", NOW - DAY),)}, "certificate-expired", "error"),
    ({"certificates": (Certificate("/c", NOW + DAY),)}, "certificate-expires", "warning"),
    ({"certificates": (Certificate("/c", None),)}, "certificate-unreadable", "warning"),
    ({"policy": PolicyFacts("damaged", 3)}, "policy-damaged", "error"),
    ({"policy": PolicyFacts("rolled-back", 3)}, "policy-rolled-back", "error"),
    ({"policy": PolicyFacts("unreadable")}, "policy-unreadable", "error"),
    ({"policy": PolicyFacts("active", 3, True)}, "policy-not-applied", "info"),
    ({"bundle": BundleFacts("pocket", "tampered", "x")}, "bundle-tampered", "error"),
    ({"bundle": BundleFacts("pocket", "key", "x")}, "bundle-key", "error"),
    ({"missing_models": ("minilm-l6",)}, "model-missing", "error"),
    ({"workers": (WorkerFacts("a", "unix", False),)}, "worker-unreachable", "error"),
    ({"workers": (WorkerFacts("a", "unix", None, closed=True),)}, "worker-closed", "error"),
    ({"workers": (WorkerFacts("a", "tcp", True),)}, "worker-by-tcp", "error"),
    ({"workers": (WorkerFacts("a", "embedded", None, False),)}, "worker-not-enabled", "warning"),
    ({"audit": AuditFacts("tampered", "record 3")}, "audit-tampered", "error"),
    ({"audit": AuditFacts("cut", "9 records: cut")}, "audit-truncated", "error"),
    ({"audit": AuditFacts("unreadable", "x")}, "audit-unreadable", "error"),
    ({"audit": AuditFacts("unsealed")}, "audit-unsealed", "warning"),
    ({"audit": AuditFacts("whole", "", 2)}, "audit-clock-set-back", "info"),
    ({"units": (UnitFacts("/u", "changed"),)}, "unit-changed", "error"),
    ({"units": (UnitFacts("/u", "missing"),)}, "unit-missing", "error"),
    ({"units": (UnitFacts("/u", "weakened"),)}, "unit-weakened", "error"),
    ({"units": (UnitFacts("/u", "replaced"),)}, "unit-replaced", "warning"),
    ({"units": (UnitFacts("/u", "masked"),)}, "unit-masked", "warning"),
    ({"units": (UnitFacts("/u", "drop-in"),)}, "unit-drop-in", "info"),
    ({"dangling": True}, "version-missing", "error"),
    ({"installed": "0.2.0"}, "version-not-running", "warning"),
    ({"listeners": (Listener("/s", exists=False),)}, "socket-silent", "error"),
    ({"listeners": (Listener("/s", exists=True, answers=False),)}, "socket-silent", "error"),
    ({"listeners": (Listener("/s", True, True, True),)}, "socket-open", "error"),
    ({"running": Running(False, ("x",), ("app",), "0.1.0")}, "not-ready", "error"),
    ({"running": Running(True, (), ("app", "old"), "0.1.0")}, "revoked-key-accepted", "error"),
    ({"keys": ("app", "new")}, "key-not-yet-accepted", "warning"),
]


def test_a_machine_that_is_well_has_no_findings() -> None:
    assert found(WELL) == []
    assert found(Facts(root=True)) == []


@pytest.mark.parametrize(("changes", "name", "severity"), CASES, ids=[case[1] for case in CASES])
def test_each_fact_has_its_one_finding(changes: dict[str, Any], name: str, severity: str) -> None:
    [finding] = found(replace(WELL, **changes))
    assert (finding.id, finding.severity) == (name, severity)
    assert finding.what and finding.do


def test_errors_come_first_and_decide_the_exit_code() -> None:
    info, warning = Finding("x", "info", "w", "d"), Finding("x", "warning", "w", "d")
    error = Finding("x", "error", "w", "d")
    assert [exit_code(some) for some in ([], [info], [info, warning])] == [0, 0, 1]
    assert exit_code([warning, error]) == 2
    several = replace(WELL, root=False, dangling=True, installed="0.2.0")
    assert [one.severity for one in found(several)] == ["error", "warning", "info"]
