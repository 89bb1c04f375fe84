"""What is wrong with a machine, as far as the facts tell: one function a subject, all pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from conductor.box.facts import Clock, Disk, Facts, Gpu
from conductor.box.finding import Finding

GIB = 2**30
FULL_BYTES = GIB // 4
"""Less is as good as full: an audit segment and a bundle would not fit."""
LOW_BYTES = 2 * GIB
FEW_INODES = 1000
SPARE_BYTES = GIB // 2
SOON = timedelta(days=30)
SLACK = timedelta(seconds=5)
_LONGEST = 20


def _rights(facts: Facts) -> Iterator[Finding]:
    if not facts.root:
        yield Finding(
            "not-root",
            "info",
            "not everything could be looked at without root",
            "run 'sudo conductor doctor'",
        )


def _configuration(facts: Facts) -> Iterator[Finding]:
    for fault in facts.faults[:_LONGEST]:
        yield Finding("configuration-faulty", "error", fault, "correct it: 'conductor check'")


def _mode(facts: Facts) -> Iterator[Finding]:
    mode = facts.mode
    if mode is None:
        return
    if mode.damaged:
        yield Finding(
            "mode-damaged",
            "error",
            "mode.json cannot be understood, and so counts as air-gapped",
            "conductor mode air-gapped, or conductor mode connected",
        )
    for path in mode.lacking:
        yield Finding(
            "mode-half-way",
            "error",
            f"{path} is not what the mode {mode.mode} needs",
            f"conductor mode {mode.mode}",
        )
    if mode.mode == "air-gapped" and mode.verdict not in ("", "secure"):
        yield Finding(
            "air-gap-open",
            "error",
            f"the appliance cannot show its air gap: {', '.join(mode.reasons) or mode.verdict}",
            "conductor doctor --air-gap tells what is open; until then nothing is answered",
        )
    elif mode.mode == "air-gapped" and not (mode.verdict or mode.damaged or mode.lacking):
        yield Finding(
            "air-gap-unattested",
            "warning",
            "the appliance has not attested to its air gap since the mode was switched",
            "systemctl start conductor.target, then conductor doctor --air-gap",
        )


def _set_aside(facts: Facts) -> Iterator[Finding]:
    if facts.set_aside:
        yield Finding(
            "remote-set-aside",
            "info",
            f"the air gap hides the remote models {', '.join(facts.set_aside)}",
            "nothing, if that is meant; 'conductor mode connected' brings them back",
        )


def _gpu(facts: Facts) -> Iterator[Finding]:
    gpu = facts.gpu or Gpu()
    if gpu.wanted and not gpu.present:
        yield Finding(
            "gpu-missing",
            "error",
            "the planner is to run on a GPU and there is none: it plans by the written-down rule",
            "look at 'nvidia-smi' and 'dmesg'; load the driver, then restart conductor-planner",
        )
    if gpu.wanted and gpu.present and not gpu.opened:
        yield Finding(
            "gpu-closed",
            "error",
            "the planner's unit keeps it from the GPU",
            "copy /usr/share/conductor/examples/planner-gpu.conf to "
            "/etc/systemd/system/conductor-planner.service.d/gpu.conf, then daemon-reload",
        )
    if gpu.opened and not gpu.wanted:
        yield Finding(
            "gpu-needlessly-open",
            "warning",
            "the planner's unit opens the GPU and its engine uses none",
            "remove /etc/systemd/system/conductor-planner.service.d/gpu.conf",
        )
    if gpu.present and gpu.wanted and not gpu.driver:
        yield Finding(
            "gpu-driver",
            "error",
            "there are device nodes of a GPU and no driver that answers",
            "install or load the NVIDIA driver",
        )
    if gpu.driver and gpu.wanted and not gpu.cuda:
        yield Finding(
            "cuda-missing",
            "error",
            "the GPU's driver is there and its CUDA library is not",
            "install the driver's package that holds libcuda.so.1",
        )
    if gpu.cuda and gpu.wanted and gpu.fault:
        yield Finding(
            "cuda-unusable",
            "error",
            f"the GPU's driver is there and CUDA does not start: {gpu.fault}",
            "look at 'nvidia-smi' and 'dmesg'; driver, library and kernel module must be of one "
            "version: restart the machine after an update of the driver",
        )


def _disks(facts: Facts) -> Iterator[Finding]:
    for disk in facts.disks:
        yield from _disk(disk)


def _disk(disk: Disk) -> Iterator[Finding]:
    free = f"{disk.free_bytes / GIB:.1f} GiB free for {disk.what} ({disk.path})"
    make_room = "make room there; 'conductor audit retain' shortens what is kept of the log"
    if disk.free_bytes < FULL_BYTES:
        why = "what cannot be recorded is refused" if disk.what == "audit log" else "it is full"
        yield Finding("disk-full", "error", f"{free}: {why}", make_room)
    elif disk.free_bytes < LOW_BYTES:
        yield Finding("disk-low", "warning", free, make_room)
    if disk.free_inodes is not None and disk.free_inodes < FEW_INODES:
        what = f"{disk.free_inodes} files more fit for {disk.what} ({disk.path})"
        yield Finding("disk-inodes", "error", what, "remove small files there")


def _memory(facts: Facts) -> Iterator[Finding]:
    memory = facts.memory
    if memory is None:
        return
    if memory.models_bytes + SPARE_BYTES > memory.total_bytes:
        yield Finding(
            "memory-too-small",
            "error",
            f"models of {memory.models_bytes / GIB:.1f} GiB are to be loaded into "
            f"{memory.total_bytes / GIB:.1f} GiB",
            "name smaller models in workers.yaml, or add memory",
        )
    elif memory.available_bytes < SPARE_BYTES:
        yield Finding(
            "memory-low",
            "warning",
            f"{memory.available_bytes / GIB:.1f} GiB of memory are available",
            "stop what else runs here, or add memory",
        )


def _clock(facts: Facts) -> Iterator[Finding]:
    clock = facts.clock
    if clock is None:
        return
    yield from _backwards(clock)
    if clock.program_built is not None and clock.now < clock.program_built - timedelta(days=1):
        yield Finding(
            "clock-wrong",
            "error",
            f"the clock says {clock.now:%Y-%m-%d}, before this program was made",
            "set it: 'timedatectl set-time'; certificates and approvals hang on it",
        )
    if clock.synchronised is False:
        yield Finding(
            "clock-not-synchronised",
            "info",
            "nothing keeps the clock right",
            "run chrony or systemd-timesyncd against a source of yours",
        )


def _backwards(clock: Clock) -> Iterator[Finding]:
    if clock.last_record is not None and clock.now + SLACK < clock.last_record:
        yield Finding(
            "clock-behind-audit",
            "error",
            f"the clock is {clock.last_record - clock.now} behind the last audit record",
            "it was set back, or wrong before: set it right. The log stays in order by its other "
            "clock",
        )


def _permissions(facts: Facts) -> Iterator[Finding]:
    said = {
        "owner": "belongs to an account that is not root",
        "group": "may be written by a group",
        "world": "may be written by everybody",
        "readable": "may be read by others",
    }
    for one in facts.exposed[:_LONGEST]:
        yield Finding(
            "file-exposed",
            "error",
            f"{one.path} {said[one.why]}",
            f"find out who changed it; then chown root and chmod {_mode_for(one.why)} it",
        )
    if (more := len(facts.exposed) - _LONGEST) > 0:
        what = f"and {more} files more"
        yield Finding("file-exposed", "error", what, "install the package again")


def _mode_for(why: str) -> str:
    return "go-rwx" if why == "readable" else "go-w"


def _secrets(facts: Facts) -> Iterator[Finding]:
    do = {
        "missing": "put it there, mode 0600, owned by root",
        "empty": "put the key into it, on one line",
        "readable": "chmod 600 it, and think about a new key: others could read this one",
        "foreign": "it was encrypted on another machine, or changed, and egress does not start "
        "with it: encrypt the key here, by 'systemd-creds encrypt'",
    }
    for one in facts.credentials:
        if one.state != "good":
            what = f"the secret {one.reference} is {one.state}"
            yield Finding(f"credential-{one.state}", "error", what, do[one.state])


def _certificates(facts: Facts) -> Iterator[Finding]:
    now = facts.clock.now if facts.clock else None
    for one in facts.certificates:
        renew = "put the renewed one there, then 'systemctl reload nginx'"
        if one.expires is None:
            what = f"{one.path} holds no certificate that can be read"
            yield Finding("certificate-unreadable", "warning", what, renew)
        elif now is not None and one.expires <= now:
            what = f"{one.path} has expired on {one.expires:%Y-%m-%d}: clients refuse it"
            yield Finding("certificate-expired", "error", what, renew)
        elif now is not None and one.expires - now < SOON:
            what = f"{one.path} expires on {one.expires:%Y-%m-%d}"
            yield Finding("certificate-expires", "warning", what, renew)


OF_THE_MACHINE = (
    *(_rights, _configuration, _mode, _set_aside, _gpu, _disks, _memory, _clock),
    *(_permissions, _secrets, _certificates),
)
