"""Which policy an appliance starts under: the last one that was put in force, not the file.

`policy.yaml` is a candidate. Only on the very first start it counts by itself, if its own tests
pass. Afterwards whatever stands in it, broken or not, waits for `conductor policy apply`.
Where the kept policy is damaged nothing remote can be reached: an older policy might allow more.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from conductor.activation.sites import APPLIANCE, OTHERS, paths_of, read_files, site_of
from conductor.activation.store import Held, Store
from conductor.activation.testing import place_of, tried
from conductor.config import POLICY, Site
from conductor.errors import ConfigError, Fault
from conductor.labels import Clearance
from conductor.strictyaml import source
from conductor.strictyaml.faults import Faults

ACTIVE_NAME = "active policy"
"""In positions, for the kept copy."""

_WHY = {
    "damaged": "the kept policy is damaged",
    "rolled-back": "the newest kept policy is gone, older ones do not count",
    "unreadable": "the policy store cannot be read",
}


@dataclass(frozen=True)
class Start:
    """A site to start with. `degraded` says why nothing remote can be reached; "" when all is well.
    `first`: no policy was ever put in force here, this one is about to be."""

    site: Site
    held: Held
    degraded: str = ""
    candidate_differs: bool = False
    """`policy.yaml` is another one than what is in force: it waits to be applied."""

    @property
    def first(self) -> bool:
        return self.held.condition == "empty"


def starting(directory: Path) -> Start:
    """The site to start with. Raises `ConfigError` when no policy at all can be had, when the
    other files do not fit the one in force, or when a first policy fails its own tests."""
    files = read_files(directory, *OTHERS)
    held = Store(paths_of(directory, files[APPLIANCE]).published).held()
    if held.copy is not None:
        on_disk = source.read(directory / POLICY, Faults()).sha256
        site = site_of(directory, {**files, POLICY: held.copy.policy}, ACTIVE_NAME)
        return Start(site, held, candidate_differs=on_disk != held.copy.sha256)
    files |= read_files(directory, POLICY)
    site = site_of(directory, files, str(directory / POLICY))
    if held.condition == "empty":
        _must_pass(site)
        return Start(site, held)
    return Start(_local_only(site), held, _degraded(held))


def _must_pass(site: Site) -> None:
    """Refuse a first policy that is not what its author thinks. Later ones are checked whole."""
    faults = [
        Fault(*place_of(result), "test-failed", f"expected {result.expected}; got {result.got}")
        for result in tried(site)
        if not result.passed
    ]
    if faults:
        raise ConfigError(faults)


def _local_only(site: Site) -> Site:
    """The site with remote workers that are cleared for nothing: below the lowest level."""
    nothing = Clearance(-1)
    return replace(
        site,
        workers=tuple(
            replace(worker, clearance=nothing) if worker.remote else worker
            for worker in site.workers
        ),
    )


def _degraded(held: Held) -> str:
    return (
        f"{_WHY[held.condition]}: nothing remote is reached until a policy with a revision above "
        f"{held.highest} is applied"
    )
