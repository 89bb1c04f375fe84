"""Policies for tests: read from the small site with changes, or made by hypothesis."""

from __future__ import annotations

import json
from typing import Any

from conductor.core import Card, Destination, Finding, Likelihood, Scan, TcpEndpoint, Worker
from conductor.errors import ConfigError
from conductor.labels import Clearance
from conductor.policy.document import Policy, read_policy
from conductor.strictyaml.faults import Faults
from conductor.strictyaml.source import document
from support.configs import overridden, policy_tree


def read(changes: dict[str, Any] | str) -> Policy:
    """A policy from the small site's file with changes, or from the text of a whole file."""
    text = changes if isinstance(changes, str) else json.dumps(overridden(policy_tree(), changes))
    faults = Faults()
    policy = read_policy(document(text.encode(), "p.yaml", faults))
    faults.raise_any()
    assert policy is not None
    return policy


def faults_of(changes: dict[str, Any] | str) -> list[tuple[str, str]]:
    """Codes and messages of what is wrong."""
    try:
        read(changes)
    except ConfigError as error:
        return [(fault.code, fault.message) for fault in error.faults]
    return []


def worker_at(destination: Destination, clearance: Clearance | None = None) -> Worker:
    """A worker at a destination, with all of its clearance unless said otherwise."""
    return Worker(
        id=f"at-{destination.id}",
        model="m",
        destination=destination,
        clearance=clearance or destination.clearance,
        endpoint=TcpEndpoint("127.0.0.1", 1),
        card=Card({"general": 1.0}, 1.0, "declared"),
    )


def found(
    *names: tuple[str, int] | tuple[str, int, Likelihood], unscanned: tuple[str, ...] = ()
) -> Scan:
    """A scan with findings: detector, count and, if not sure, likelihood."""
    findings = tuple(
        Finding(name[0], name[1], likelihood=name[2] if len(name) > 2 else Likelihood.VERY_LIKELY)
        for name in names
    )
    return Scan(findings, 10, unscanned)
