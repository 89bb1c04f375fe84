"""What a process can tell of its own isolation, and what follows from it.

The evidence is gathered from inside, so it proves what this process can reach, not what the machine
can: root's view from outside is that of `conductor attest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from conductor.box import firewall
from conductor.box.airgap import Declared
from conductor.box.canaries import escaped, released
from conductor.box.network import Network, network

Verdict = Literal["secure", "degraded", "connected"]
"""`connected`: no air gap was declared, so none is claimed, whatever the evidence says."""


@dataclass(frozen=True)
class Evidence:
    """What was found. `canaries` are empty where no air gap was declared."""

    declared: Declared
    network: Network
    canaries: dict[str, str] = field(default_factory=dict)
    firewall_sha256: str | None = None
    """Of the rules that the kernel has, as root wrote them down a short while ago."""
    destinations: tuple[str, ...] = ()
    """Enabled remote destinations."""
    policy_revision: int = 0
    weakened: tuple[str, ...] = ()
    firewall_expected: bool = False
    """This machine has a firewall that could hold our rules."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """What an air gap lacks, by name; empty where it is whole."""
        return tuple(_lacking(self))

    @property
    def verdict(self) -> Verdict:
        if not self.declared.air_gapped:
            return "connected"
        return "degraded" if self.reasons else "secure"

    def record(self) -> dict[str, Any]:
        """The fields of the record `attestation`."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons) if self.declared.air_gapped else [],
            "mode_number": self.declared.marker.number,
            "namespace": self.network.namespace,
            "interfaces": list(self.network.interfaces or ())[:16],
            "routes": self.network.routes,
            "abstract_sockets": self.network.abstract_sockets,
            "canaries": dict(self.canaries),
            "firewall_sha256": self.firewall_sha256,
            "destinations": list(self.destinations)[:64],
            "policy_revision": self.policy_revision,
            "weakened": list(self.weakened),
        }


def _lacking(evidence: Evidence) -> Iterator[str]:
    """Pure. What cannot be read is not taken for good."""
    seen = evidence.network
    if not evidence.declared.by_unit:
        yield "unit-not-closed"
    if evidence.declared.marker.damaged:
        yield "marker-damaged"
    if seen.namespace is None:
        yield "namespace-unknown"
    if seen.interfaces is None or seen.ways_out:
        yield "interfaces"
    if seen.routes is None or seen.routes:
        yield "routes"
    if seen.abstract_sockets is None or seen.abstract_sockets:
        yield "abstract-sockets"
    if not evidence.canaries:
        yield "no-canaries"
    for name in escaped(evidence.canaries):
        yield f"canary:{name}"
    if evidence.destinations:
        yield "destinations"
    if evidence.firewall_expected and evidence.firewall_sha256 is None:
        yield "firewall-rules"


def gathered(
    declared: Declared,
    directory: Path,
    *,
    destinations: Sequence[str],
    policy_revision: int,
    weakened: Sequence[str],
) -> Evidence:
    """Look, and release the canaries where an air gap was declared. Blocks for moments."""
    return Evidence(
        declared=declared,
        network=network(),
        canaries=released() if declared.air_gapped else {},
        firewall_sha256=firewall.seen_sha256(),
        firewall_expected=firewall.PROGRAM.exists()
        and (declared.by_unit or (directory / firewall.RULES).exists()),
        destinations=tuple(destinations),
        policy_revision=policy_revision,
        weakened=tuple(weakened),
    )
