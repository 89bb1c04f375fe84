"""Policies for tests of their life: the small site's, with tests in the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from conductor.activation.sites import site_of
from conductor.config import POLICY, Site
from support.configs import local_worker, overridden, policy_tree, remote_worker, write_site

Tree = dict[str, Any]

TESTS: list[Tree] = [
    {
        "name": "a secret stays here",
        "given": {"label": "public+secret", "to": "frontier"},
        "expect": {"decision": "deny", "rule": "no-secret-remote"},
    },
    {
        "name": "ordinary work may go out",
        "given": {"label": "internal", "to": "frontier"},
        "expect": {"decision": "allow", "rule": "ordinary-work-may-go-out"},
    },
]
FRONTIER_FOR_SECRETS: Tree = {
    "kind": "remote",
    "vendor": "simulated",
    "region": "us",
    "clearance": {"level": "internal", "compartments": ["pii", "secret"]},
}
"""Cleared for so much that the guardrail, not the floor, is what holds secrets back."""


def policy_bytes(revision: int = 1, **changes: Any) -> bytes:
    """A policy that passes every gate; `changes` as in `configs.overridden`."""
    base = {
        "revision": revision,
        "destinations": {"frontier": FRONTIER_FOR_SECRETS},
        "tests": TESTS,
    }
    return json.dumps(overridden(overridden(policy_tree(), base), changes), indent=1).encode()


def site_folder(directory: Path, policy: bytes | None = None) -> Path:
    """A site with one local and one remote worker, whose policy passes every gate."""
    write_site(directory, workers=[local_worker("near", port=9), remote_worker("far")])
    (directory / POLICY).write_bytes(policy or policy_bytes())
    return directory


def site_under(directory: Path, policy: bytes) -> Site:
    """The site of a folder under another policy."""
    files = {name: (directory / name).read_bytes() for name in ("appliance.yaml", "workers.yaml")}
    return site_of(directory, {**files, POLICY: policy})
