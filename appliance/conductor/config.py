"""One site's configuration: three files in one directory, read together, faults together.

appliance.yaml   this machine: mode, paths, listeners, keys, limits      settings.Appliance
policy.yaml      labels, destinations, rules                             policy.document.Policy
workers.yaml     the pool                                                core.Worker
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from conductor.appliancefile import read_appliance, read_base
from conductor.core import Worker
from conductor.policy.document import Policy, read_policy
from conductor.selection import CONDUCTOR_MODELS
from conductor.settings import Appliance
from conductor.strictyaml import source as yamlsource
from conductor.strictyaml.faults import Faults
from conductor.workers.poolfile import read_pool


@dataclass(frozen=True)
class Site:
    """A site as configured. `sha256` is that of each file's bytes, in hex, by file name."""

    directory: Path
    appliance: Appliance
    workers: tuple[Worker, ...]
    policy: Policy
    sha256: Mapping[str, str]


def load(directory: Path) -> Site:
    """Read the three files. Raises `ConfigError` with every fault in all of them.

    No secret is read here: `secretrefs.resolve` does that, in the process that needs it.
    """
    faults = Faults()
    names = ("appliance.yaml", "policy.yaml", "workers.yaml")
    documents = {name: yamlsource.read(directory / name, faults) for name in names}
    policy = read_policy(documents["policy.yaml"])
    base = read_base(documents["appliance.yaml"].root)
    workers = read_pool(documents["workers.yaml"].root, policy, base)
    models = {*CONDUCTOR_MODELS, *(worker.id for worker in workers)}
    lattice = policy.lattice if policy else None
    appliance = read_appliance(documents["appliance.yaml"].root, base, lattice, models)
    faults.raise_any()
    if policy is None:
        raise AssertionError("a policy that cannot be read is a fault")
    hashes = {name: document.sha256 for name, document in documents.items()}
    return Site(directory, appliance, workers, policy, hashes)
