"""Takes the packages of a lock from an environment that has them, instead of installing them again.

    taken.py LOCK SITE TARGET

For the system tests: pip has checked the hashes when it made the environment, and compiled. Ends
with 1 when the environment is not of that lock, to the version.

Left out: programs, which no unit starts. A compiled file is marked as believed without its source's
time, which a package does not keep.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution, distributions
from pathlib import Path, PurePosixPath

PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)
_HEAD = 16
"""Bytes before the code: PEP 552."""
_BELIEVED = (1).to_bytes(4, "little")


def main(lock: Path, site: Path, target: Path) -> None:
    """Copy everything, or end with a message."""
    there = {_key(one.metadata["Name"]): one for one in distributions(path=[str(site)])}
    for name, version in PINNED.findall(lock.read_text()):
        found = there.get(_key(name))
        if found is None or found.version != version:
            sys.exit(f"taken.py: {site} has not {name} {version}: make its packages anew")
        for file in files(found):
            copy(site / file, target / file)


def files(one: Distribution) -> Iterator[PurePosixPath]:
    """Of a package, by its own record."""
    if not isinstance(one, PathDistribution) or one.files is None:
        raise PackageNotFoundError
    yield from (file for file in one.files if ".." not in file.parts)


def copy(source: Path, target: Path) -> None:
    """One file; a compiled one in a form that outlives its source's time."""
    if not source.exists():  # compiled by an interpreter that did not get to it
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".pyc":
        target.write_bytes(believed(source.read_bytes()))
    else:
        shutil.copyfile(source, target)


def believed(code: bytes) -> bytes:
    """A compiled file as `--invalidation-mode unchecked-hash` makes it, but for the hash."""
    return code[:4] + _BELIEVED + bytes(8) + code[_HEAD:]


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
