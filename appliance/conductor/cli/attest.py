"""`conductor attest`: the evidence for an air gap, from inside and outside, and its limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import orjson

from conductor.box.airgap import Marker, read_marker
from conductor.box.canaries import escaped
from conductor.box.command import Run, nothing_runs, run
from conductor.box.modeswitch import lacking
from conductor.box.outside import Outside, open_ways, seen
from conductor.box.place import Place
from conductor.cli.installed import Installed, installed, latest
from conductor.cli.options import json_option, root_option

FRESH = timedelta(minutes=11)
"""A little longer than the appliance itself believes an attestation (`attesting.STALE_S`)."""

UNKNOWABLE = (
    "what other software on this machine sends: NTP, DNS, updates, the operator's own shell",
    "what model servers of your own send: close their units as those of the appliance are closed",
    "what hardware does by itself: management controllers, firmware of network cards and GPUs",
    "what root did: root can undo all of this, and write records anew since the last anchor that "
    "is kept elsewhere ('conductor audit head')",
    "the minutes between two attestations",
)


@dataclass(frozen=True)
class Proof:
    """Both views, at the time `now`. `inside` is the latest record `attestation`; None when there
    is none."""

    marker: Marker
    inside: dict[str, Any] | None
    outside: Outside
    lacking: tuple[str, ...]
    now: datetime

    @property
    def objections(self) -> tuple[str, ...]:
        """What speaks against an air gap; empty when nothing does."""
        return tuple(_objections(self))

    def as_json(self) -> dict[str, Any]:
        return {
            "air_gapped": not self.objections,
            "objections": list(self.objections),
            "mode": self.marker.mode,
            "inside": self.inside,
            "outside": self.outside.as_json(),
            "cannot_know": list(UNKNOWABLE),
        }


def _objections(proof: Proof) -> Iterator[str]:
    """Pure."""
    if proof.marker.mode != "air-gapped":
        yield "no air gap is declared: conductor mode air-gapped"
    elif proof.inside is None:
        yield "the appliance has not attested to it, or its audit log cannot be read: are you root?"
    elif proof.inside.get("verdict") != "secure":
        reasons = ", ".join(map(str, proof.inside.get("reasons", [])))
        yield f"the appliance says {proof.inside.get('verdict')}: {reasons or 'not yet closed'}"
    elif proof.inside.get("mode_number") != proof.marker.number:
        yield "the appliance has not attested since the mode was switched: does it run?"
    elif not _fresh(str(proof.inside.get("ts")), proof.now):
        yield "the latest attestation is too old, or of a time to come: does the appliance run?"
    yield from open_ways(proof.outside)
    if _other_rules(proof):
        yield "the firewall's rules are not those that were attested to"
    if proof.marker.mode == "air-gapped":
        yield from (f"not as the package has it: {path}" for path in proof.lacking)


def _other_rules(proof: Proof) -> bool:
    attested, live = (proof.inside or {}).get("firewall_sha256"), proof.outside.firewall_sha256
    return None not in (attested, live) and attested != live


def _fresh(ts: str, now: datetime) -> bool:
    try:
        return abs(now - datetime.fromisoformat(ts)) <= FRESH
    except (ValueError, TypeError):
        return False


def proof_of(here: Installed, ask: Run) -> Proof:
    """Gather it. Never raises but for a package that is not whole (`StartError`)."""
    place, site = here.place, here.site
    audit = site.appliance.paths.audit if site else None
    return Proof(
        marker=read_marker(here.directory),
        inside=latest(audit, "attestation") if audit else None,
        outside=seen(ask) if place.running else seen(nothing_runs),
        lacking=tuple(lacking(place)),
        now=datetime.now(UTC),
    )


@click.command()
@root_option
@json_option
def attest(root: Path, as_json: bool) -> None:
    """Show what is known of this machine's air gap, and what cannot be known. As root.

    \b
    Exit codes: 0 nothing speaks against an air gap; 1 something does.
    """
    place = Place(root.absolute())
    tell(proof_of(installed(place), run), as_json=as_json)


def tell(proof: Proof, *, as_json: bool) -> None:
    """Print it, and end with the exit code."""
    click.echo(orjson.dumps(proof.as_json()) if as_json else "\n".join(_in_words(proof)))
    raise SystemExit(1 if proof.objections else 0)


def _in_words(proof: Proof) -> Iterator[str]:
    yield "air gap: " + ("nothing speaks against it" if not proof.objections else "NOT CLOSED")
    yield from (f"  ! {objection}" for objection in proof.objections)
    yield "from inside, by conductor.service itself, in the audit log"
    yield from _inside(proof.inside) if proof.inside else ("  nothing",)
    yield "from outside, by root"
    yield from _outside(proof.outside)
    yield "what none of this can know"
    yield from (f"  - {limit}" for limit in UNKNOWABLE)


def _inside(record: dict[str, Any]) -> Iterator[str]:
    canaries: dict[str, str] = record.get("canaries", {})
    yield f"  {record['ts']}  verdict {record.get('verdict')}, record {record['seq']}"
    yield f"  interfaces: {', '.join(record.get('interfaces', [])) or 'none'}"
    yield f"  routes out: {record.get('routes')}"
    yield f"  abstract sockets: {record.get('abstract_sockets')}"
    yield f"  attempts to get out: {len(canaries)}, of which got out: {len(escaped(canaries))}"
    yield from (f"    {name}: {how}" for name, how in sorted(canaries.items()))
    yield f"  remote destinations: {', '.join(record.get('destinations', [])) or 'none'}"
    yield f"  policy revision {record.get('policy_revision')}"
    yield f"  weakened: {', '.join(record.get('weakened', [])) or 'nothing'}"


def _outside(outside: Outside) -> Iterator[str]:
    for one in outside.services:
        apart = {True: "apart", False: "THE MACHINE'S OWN", None: "not to be seen"}[one.apart]
        yield f"  {one.unit}: network namespace {apart} ({one.network.namespace})"
    if not outside.services:
        yield "  no service of the appliance runs, or none can be seen"
    yield f"  egress: {'RUNS' if outside.egress_runs else 'does not run'}"
    if outside.firewall_sha256 is None:
        yield "  firewall: our rules are not loaded, or cannot be read"
    else:
        yield f"  firewall: {outside.firewall_sha256[:16]}, packets rejected: {outside.blocked}"
