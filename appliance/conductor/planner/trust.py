"""Which bundle is meant, and whose signature counts for it.

The name `pocket` is the bundle inside this package, checked against the key beside it and no other:
that finds damage and mixed-up releases, while who made it is a question of who made the package.
Anything else is a path, checked against the keys that the operator names and no other.

Settings (`appliance.yaml`):

    planner:
      engine: pocket
      bundle: pocket              # or a path, relative to paths.root
      trusted_keys: [site.pub]    # public keys in PEM, relative likewise; for paths only

Left out: reading that file (`appliancefile.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from conductor.errors import BundleError
from conductor.planner.bundle import Bundle, Runtime, open_bundle
from conductor.planner.manifest import Refusal
from conductor.process.keyfiles import load_public

SHIPPED_NAME = "pocket"
PURPOSE = "bundle"
"""Of these keys, in messages."""


def resolve(
    name_or_path: str | Path, extra_keys: Sequence[Path] = (), runtime: Runtime | None = None
) -> Bundle:
    """Open the shipped bundle by its name, or one at a path that a key of `extra_keys` has signed.

    Raises `BundleError`, and `ConfigError` for a key file that cannot be used.
    """
    if str(name_or_path) == SHIPPED_NAME:
        return _shipped(runtime)
    if not extra_keys:
        raise BundleError(
            Refusal.KEY,
            "nothing says who may sign this bundle: name the maker's public key file under "
            "planner.trusted_keys (or with --key)",
        )
    trusted = [load_public(path, PURPOSE) for path in extra_keys]
    return open_bundle(Path(name_or_path), trusted, runtime)


def shipped_folder() -> Path:
    """Where the package keeps `pocket/` and `pocket.pub`."""
    return Path(__file__).with_name("shipped")


def _shipped(runtime: Runtime | None) -> Bundle:
    path = shipped_folder() / SHIPPED_NAME
    if not path.is_dir():
        raise BundleError(
            Refusal.ABSENT, "this installation holds no trained conductor: install it again"
        )
    key = load_public(path.with_suffix(".pub"), PURPOSE)
    return open_bundle(path, [key], runtime)
