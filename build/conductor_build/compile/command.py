"""`conductor-build compile`: a bundle in, one that is ready for a kind of machine out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from conductor_build.compile.targets import DEFAULT_TARGET, TARGETS, Options, find_target
from conductor_kernels.architectures import ARCHITECTURES

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from conductor.planner.bundle import Bundle

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("compile")
@click.argument("source", metavar="BUNDLE", type=_FOLDER)
@click.option("--out", type=_FOLDER, required=True, metavar="DIR", help="A new folder.")
@click.option("--target", type=click.Choice(list(TARGETS)), default=DEFAULT_TARGET,
              show_default=True, help="What to compile it for.")  # fmt: skip
@click.option("--arch", "architectures", type=click.Choice(list(ARCHITECTURES)), multiple=True,
              help="A GPU architecture; may be given again.  [default: all of them]")  # fmt: skip
@click.option("--sign", "key", type=_FILE, metavar="KEY",
              help="Private key, see bundle keygen.  [default: BUNDLE.key]")  # fmt: skip
@click.option("--key", "trusted", type=_FILE, multiple=True, metavar="FILE",
              help="Public key of somebody who may have signed BUNDLE; may be given again.  "
              "[default: that of --sign]")  # fmt: skip
@click.option("--jobs", type=click.IntRange(1, 256), default=2, show_default=True,
              help="Kernels compiled at once; each takes up to a gigabyte.")  # fmt: skip
@click.option("--allow-faults", is_flag=True,
              help="Write kernels that spill, or are faulty in another way that their machine code "
              "shows; the report then says so.")  # fmt: skip
def compile_(
    source: Path,
    out: Path,
    target: str,
    architectures: tuple[str, ...],
    key: Path | None,
    trusted: tuple[Path, ...],
    jobs: int,
    allow_faults: bool,
) -> None:
    """Make BUNDLE ready for a kind of machine.

    Target triton compiles the kernels ahead of time and puts them into a copy of the bundle, so
    that the box needs no compiler; report/kernels.md says what became of each. It takes no GPU.

    \b
    Exit codes:
      0  compiled: the path of what was written
      1  not, as where a kernel spills: the message says why, and nothing is at DIR
    """
    signing = _signing(source, key)
    compile_for = find_target(target)
    opened = _opened(source, trusted, signing)
    chosen = tuple(dict.fromkeys(architectures))
    say = partial(click.echo, err=True)
    click.echo(compile_for(opened, out, Options(signing, chosen, jobs, allow_faults, say)))


def _signing(source: Path, key: Path | None) -> Ed25519PrivateKey | None:
    """None: none is named, and there is none beside the bundle."""
    from conductor.planner.trust import PURPOSE
    from conductor.process.keyfiles import load_private

    beside = source.with_name(f"{source.name}.key")
    if key is None and not beside.exists():
        return None
    return load_private(key or beside, PURPOSE)


def _opened(source: Path, trusted: tuple[Path, ...], signing: Ed25519PrivateKey | None) -> Bundle:
    from conductor.planner.bundle import open_bundle
    from conductor.planner.trust import resolve

    if trusted or signing is None:
        return resolve(source, trusted)
    return open_bundle(source, [signing.public_key()])
