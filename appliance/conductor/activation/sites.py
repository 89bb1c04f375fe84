"""Sites made of bytes: the policy that is meant, beside the other two files as they were read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from conductor.appliancefile import read_base
from conductor.config import POLICY, Site
from conductor.policy.document import Policy
from conductor.settings import Appliance, Paths
from conductor.strictyaml import source
from conductor.strictyaml.faults import Faults

APPLIANCE = "appliance.yaml"
WORKERS = "workers.yaml"
OTHERS = (APPLIANCE, WORKERS)
"""What a candidate is read beside."""


def read_files(directory: Path, *names: str) -> dict[str, bytes]:
    """The bytes of these of a site's files. Raises `ConfigError`."""
    faults = Faults()
    files = {name: source.read(directory / name, faults).data for name in names}
    faults.raise_any()
    return files


def site_of(directory: Path, files: Mapping[str, bytes], name: str = POLICY) -> Site:
    """The site of these bytes; `name` stands for the policy in positions. Raises `ConfigError`."""
    # Nothing of a shell but its directory and bytes is looked at.
    shell = Site(directory, cast(Appliance, None), (), cast(Policy, None), {}, files)
    return shell.with_policy(files[POLICY], name)


def paths_of(directory: Path, appliance: bytes) -> Paths:
    """Where a site's state stands, though its policy may be unreadable. Raises `ConfigError`."""
    faults = Faults()
    root = source.parse(appliance, str(directory / APPLIANCE), faults)
    base = read_base(root)
    faults.raise_any()
    return base.paths
