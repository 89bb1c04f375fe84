"""Root's view of an air gap, from outside the services: what they cannot see of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conductor.box import firewall
from conductor.box.command import NOT_THERE, Run
from conductor.box.modeswitch import MASKED
from conductor.box.network import Network, namespace, network

INIT = Path("/proc/1")
UNITS = ("conductor.service", "conductor-planner.service")


@dataclass(frozen=True)
class UnitSeen:
    """A running service: `apart` is whether its network namespace is another than the machine's."""

    unit: str
    process: int
    network: Network
    apart: bool | None


@dataclass(frozen=True)
class Outside:
    """`firewall_sha256` is that of the live rules without their counters; `blocked` how many
    packets they have rejected since they were loaded. None for what could not be seen.
    `unruled`: this machine has `nft`, and our rules are not loaded."""

    services: tuple[UnitSeen, ...]
    egress_runs: bool
    firewall_sha256: str | None
    blocked: int | None
    unruled: bool = False

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def seen(run: Run, proc: Path = Path("/proc")) -> Outside:
    """Look at the running machine. Never raises."""
    rules = run(firewall.LISTING)
    listing = rules.output if rules.good else ""
    live = firewall.sha256(listing)
    return Outside(
        services=tuple(_services(run, proc)),
        egress_runs=any(_process(run, unit) for unit in MASKED[:1]),
        firewall_sha256=live,
        blocked=firewall.blocked(listing),
        unruled=live is None and rules.code != NOT_THERE,
    )


def workers(run: Run) -> list[str]:
    """The instances of the embedded models' unit that are loaded."""
    listed = run(["systemctl", "list-units", "--plain", "--no-legend", "conductor-worker@*"])
    return [line.split()[0] for line in listed.output.splitlines() if listed.good and line.split()]


def _services(run: Run, proc: Path) -> list[UnitSeen]:
    machine = namespace(proc / "1")
    pairs = [(unit, _process(run, unit)) for unit in (*UNITS, *workers(run))]
    return [_service(unit, process, proc, machine) for unit, process in pairs if process]


def _service(unit: str, process: int, proc: Path, machine: int | None) -> UnitSeen:
    own = network(proc / str(process))
    known = machine is not None and own.namespace is not None
    return UnitSeen(unit, process, own, own.namespace != machine if known else None)


def _process(run: Run, unit: str) -> int:
    """The main process of a unit; 0 when it does not run."""
    asked = run(["systemctl", "show", "--property=MainPID", "--value", unit])
    text = asked.output.strip()
    return int(text) if asked.good and text.isdigit() else 0


def open_ways(outside: Outside) -> Sequence[str]:
    """What contradicts an air gap, by name. Pure."""
    found = [f"{one.unit}: the machine's own network" for one in outside.services if not one.apart]
    found += [
        f"{one.unit}: {', '.join(one.network.ways_out)}"
        for one in outside.services
        if one.network.ways_out
    ]
    found += ["conductor-egress.service runs"] if outside.egress_runs else []
    return [*found, *(["the firewall rules are not loaded"] if outside.unruled else [])]
