"""What is wrong with the appliance's own parts: policy, planner, models, workers, log, units."""

from __future__ import annotations

from collections.abc import Iterator

from conductor.box.facts import Facts, UnitFacts
from conductor.box.finding import Finding


def _policy(facts: Facts) -> Iterator[Finding]:
    policy = facts.policy
    if policy is None:
        return
    why = {
        "damaged": "the newest kept policy is not what was written",
        "rolled-back": f"the kept policy of revision {policy.highest} is gone, older ones are not",
        "unreadable": "the kept policies cannot be read",
    }
    if policy.condition in why:
        yield Finding(
            f"policy-{policy.condition}",
            "error",
            f"{why[policy.condition]}: nothing remote is reached",
            f"conductor policy apply, with a revision above {policy.highest}",
        )
    if policy.candidate_differs:
        yield Finding(
            "policy-not-applied",
            "info",
            "policy.yaml is not the policy in force",
            "'conductor policy apply', or leave it as a draft",
        )


def _bundle(facts: Facts) -> Iterator[Finding]:
    bundle = facts.bundle
    if bundle is not None and bundle.refusal:
        yield Finding(
            f"bundle-{bundle.refusal}",
            "error",
            f"the conductor of the engine {bundle.engine} is refused ({bundle.message}): the "
            "written-down rule plans",
            "install a bundle that a key under planner.trusted_keys has signed, or name another",
        )


def _models(facts: Facts) -> Iterator[Finding]:
    for name in facts.missing_models:
        yield Finding(
            "model-missing",
            "error",
            f"the file of the model {name} is not here",
            f"copy it to paths.models; where there is a network, 'conductor models pull {name}'",
        )


def _workers(facts: Facts) -> Iterator[Finding]:
    for one in facts.workers:
        if one.way == "tcp" and facts.installed:
            yield Finding(
                "worker-by-tcp",
                "error",
                f"the worker {one.worker} is reached by TCP, and the API's unit has no network",
                "have it listen on a Unix socket below /run/conductor/workers, and say 'unix:' in "
                "workers.yaml",
            )
        elif not one.unit_enabled:
            yield Finding(
                "worker-not-enabled",
                "warning",
                f"nothing starts the embedded worker {one.worker}",
                f"systemctl enable --now conductor-worker@{one.worker}.service",
            )
        elif one.closed:
            yield Finding(
                "worker-closed",
                "error",
                f"the API's account may not connect to the socket of the worker {one.worker}",
                "give the socket the group conductor and mode 0660, and let that group into its "
                "folder",
            )
        elif one.reached is False:
            yield Finding(
                "worker-unreachable",
                "error",
                f"nobody answers for the worker {one.worker}",
                "start its model server; 'journalctl' of its unit tells why it is not there",
            )


def _audit(facts: Facts) -> Iterator[Finding]:
    audit = facts.audit
    if audit is None:
        return
    keep = (
        "keep the log as evidence; 'conductor audit verify' tells where. Begin a new one elsewhere"
    )
    if audit.condition == "tampered":
        yield Finding("audit-tampered", "error", f"the audit log: {audit.detail}", keep)
    elif audit.condition == "cut":
        what = f"the audit log ends before a checkpoint that was signed: {audit.detail}"
        yield Finding("audit-truncated", "error", what, keep)
    elif audit.condition == "unreadable" and facts.root:
        do = "look at the disk, and at owner and mode of the folder"
        yield Finding("audit-unreadable", "error", f"the audit log: {audit.detail}", do)
    elif audit.condition == "unsealed":
        do = "restart the appliance: it makes a key at its start"
        yield Finding("audit-unsealed", "warning", "the audit log is not sealed", do)
    if audit.clock_set_back:
        what = f"the clock was set back {audit.clock_set_back} times while records were written"
        yield Finding("audit-clock-set-back", "info", what, "look at what sets the clock")


def _units(facts: Facts) -> Iterator[Finding]:
    for unit in facts.units:
        yield _unit(unit)


def _drains(facts: Facts) -> Iterator[Finding]:
    for one in facts.drains:
        if one.drain_s >= one.stop_s:
            yield Finding(
                "drain-cut-short",
                "warning",
                f"requests may run for {one.drain_s:g} s when {one.unit} stops, and systemd kills "
                f"it after {one.stop_s:g} s",
                f"lower api.drain_s, or raise TimeoutStopSec= by 'systemctl edit {one.unit}'",
            )


def _unit(unit: UnitFacts) -> Finding:
    again = "install the package again, or take your change to a drop-in"
    match unit.how:
        case "weakened":
            what = f"{unit.path} takes a protection away that the appliance counts on"
            return Finding(
                "unit-weakened", "error", what, "remove it, then systemctl daemon-reload"
            )
        case "changed" | "missing":
            what = f"{unit.path} is {unit.how}"
            return Finding(f"unit-{unit.how}", "error", what, again)
        case "replaced":
            what = f"{unit.path} stands in place of the shipped unit, and of its upgrades"
            return Finding("unit-replaced", "warning", what, again)
        case "masked":
            what = f"{unit.path} is masked"
            return Finding("unit-masked", "warning", what, "systemctl unmask it, if it should run")
        case _:
            what = f"{unit.path} is a drop-in of yours"
            return Finding("unit-drop-in", "info", what, "nothing, if you know it")


def _versions(facts: Facts) -> Iterator[Finding]:
    if facts.dangling:
        yield Finding(
            "version-missing",
            "error",
            "/opt/conductor/current leads nowhere",
            "conductor rollback, or install the package again",
        )
    running = facts.running
    if running and facts.installed and running.build not in ("", facts.installed):
        yield Finding(
            "version-not-running",
            "warning",
            f"{facts.installed} is installed, {running.build} runs",
            "systemctl restart conductor.service",
        )


def _running(facts: Facts) -> Iterator[Finding]:
    for one in facts.listeners:
        if not one.exists or one.answers is False:
            what = f"{one.path} {'does not answer' if one.exists else 'is not there'}"
            do = "systemctl start conductor.target; 'journalctl -u conductor' tells more"
            yield Finding("socket-silent", "error", what, do)
        elif one.open_to_all:
            do = "restart the socket's unit, and find out who changed it"
            yield Finding("socket-open", "error", f"{one.path} is open to every account", do)
    running = facts.running
    if running is None:
        return
    told = list(running.reasons)
    if facts.mode and facts.mode.verdict == "degraded":  # of the gap, `air-gap-open` tells
        told = [reason for reason in told if not reason.startswith("air gap: ")]
    for reason in told if not running.ready else ():
        do = "the other findings, or 'journalctl -u conductor', tell why"
        yield Finding("not-ready", "error", f"no request is served: {reason}", do)
    if facts.keys:
        for key in sorted(set(running.keys) - set(facts.keys)):
            yield Finding(
                "revoked-key-accepted",
                "error",
                f"the key {key} is not in appliance.yaml any more, and still accepted",
                "systemctl restart conductor.service",
            )
        for key in sorted(set(facts.keys) - set(running.keys)):
            yield Finding(
                "key-not-yet-accepted",
                "warning",
                f"the key {key} is in appliance.yaml and not accepted yet",
                "systemctl restart conductor.service",
            )


OF_THE_PARTS = (
    *(_policy, _bundle, _models, _workers, _audit),
    *(_units, _drains, _versions, _running),
)
