"""One site's configuration: three files in one directory, read together, faults together.

appliance.yaml   this machine: mode, paths, listeners, keys, limits      settings.Appliance
policy.yaml      labels, destinations, rules                             policy.document.Policy
workers.yaml     the pool                                                core.Worker

Where this machine was declared air-gapped (`box/airgap.py`), the mode is local-only whatever the
file says, and remote workers are set aside: that is no mistake in the files, and no reason not to
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from conductor.appliancefile import read_appliance, read_base
from conductor.box.airgap import UNDECLARED, Declared, declared
from conductor.core import Worker
from conductor.policy.document import Policy, read_policy
from conductor.selection import CONDUCTOR_MODELS
from conductor.settings import Appliance, Key
from conductor.strictyaml import source as yamlsource
from conductor.strictyaml.faults import Faults
from conductor.workers.poolfile import read_pool

POLICY = "policy.yaml"
_FILES = ("appliance.yaml", POLICY, "workers.yaml")


@dataclass(frozen=True)
class Site:
    """A site as configured: one snapshot. `sha256` is that of each file's bytes, in hex, by file
    name. Workers and keys are bound to this policy: labels of another one mean nothing here."""

    directory: Path
    appliance: Appliance
    workers: tuple[Worker, ...]
    policy: Policy
    sha256: Mapping[str, str]
    files: Mapping[str, bytes] = field(repr=False)
    """The bytes of each file, by name, as they were read."""
    declared: Declared = UNDECLARED
    """What this machine was declared to be."""
    set_aside: tuple[str, ...] = ()
    """Remote workers that are in the file, and left out because the machine is air-gapped."""

    def with_policy(self, raw: bytes, name: str = POLICY) -> Site:
        """This site under another policy; the other files are those that it was read from, though
        they may have changed on disk. `name` stands in positions.

        Raises `ConfigError` with every fault, also where the other files need what it lacks.
        """
        faults = Faults()
        documents = {
            file: yamlsource.document(data, str(self.directory / file), faults)
            for file, data in self.files.items()
            if file != POLICY
        }
        documents[POLICY] = yamlsource.document(raw, name, faults)
        return _site(self.directory, documents, {**self.files, POLICY: raw}, faults)

    @cached_property
    def worker_by_id(self) -> Mapping[str, Worker]:
        """The workers, by id."""
        return MappingProxyType({worker.id: worker for worker in self.workers})

    def key(self, key_id: str) -> Key | None:
        """The key of that id, its default label in the words of this policy."""
        return next((key for key in self.appliance.keys if key.id == key_id), None)


def load(directory: Path) -> Site:
    """Read the three files. Raises `ConfigError` with every fault in all of them.

    No secret is read here: `secretrefs.resolve` does that, in the process that needs it.
    """
    faults = Faults()
    read = {name: yamlsource.read(directory / name, faults) for name in _FILES}
    files = {name: document.data for name, document in read.items()}
    return _site(directory, read, files, faults)


def _site(
    directory: Path,
    documents: Mapping[str, yamlsource.Document],
    files: Mapping[str, bytes],
    faults: Faults,
) -> Site:
    policy = read_policy(documents[POLICY])
    base = read_base(documents["appliance.yaml"].root)
    workers = read_pool(documents["workers.yaml"].root, policy, base)
    models = {*CONDUCTOR_MODELS, *(worker.id for worker in workers)}
    lattice = policy.lattice if policy else None
    appliance = read_appliance(documents["appliance.yaml"].root, base, lattice, models)
    faults.raise_any()
    if policy is None:
        raise AssertionError("a policy that cannot be read is a fault")
    hashes = {name: document.sha256 for name, document in documents.items()}
    site = Site(directory, appliance, workers, policy, hashes, files, declared(directory))
    return _closed(site) if site.declared.air_gapped else site


def _closed(site: Site) -> Site:
    """The site of an air-gapped machine."""
    return replace(
        site,
        appliance=replace(site.appliance, mode="local-only"),
        workers=tuple(worker for worker in site.workers if not worker.remote),
        set_aside=tuple(worker.id for worker in site.workers if worker.remote),
    )
