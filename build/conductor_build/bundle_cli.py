"""`conductor-build bundle`: keys for bundles, and checking one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from conductor.errors import BundleError, ConfigError
from conductor.planner.bundle import Bundle
from conductor.planner.kinds import LM
from conductor.planner.manifest import Manifest, Refusal


@click.group()
def bundle() -> None:
    """Trained conductors on disk: make a signing key, check a bundle."""


@bundle.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="KEY",
    help="The private key's file. The public key goes beside it, as KEY.pub.",
)
def keygen(out: Path) -> None:
    """Make an Ed25519 key pair for signing bundles.

    The private key (mode 600) stays where conductors are trained. The public key goes to the
    appliances, under planner.trusted_keys; compare the fingerprint that is printed by another way.
    """
    from conductor.planner.trust import PURPOSE
    from conductor.process.keyfiles import fingerprint, generate

    public = out.with_name(f"{out.name}.pub")
    key = generate(out, public, PURPOSE)
    click.echo(f"private key  {out}\npublic key   {public}\nfingerprint  {fingerprint(key)}")


@bundle.command()
@click.argument("name_or_path", metavar="BUNDLE")
@click.option(
    "--key",
    "keys",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Public key of somebody who may have signed it; may be given again. BUNDLE `pocket` is "
    "checked against the key that ships with it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(
    context: click.Context, name_or_path: str, keys: tuple[Path, ...], as_json: bool
) -> None:
    """Check signature, files and fit of BUNDLE: a directory, or `pocket` for the shipped one. Of
    a language model also that prompt, tokenizer, tables and checkpoint belong together.

    \b
    Exit codes:
      0  it is whole, signed with one of the keys, and made for this release
      1  it is not
      2  there is no bundle, or it or a key cannot be read
    """
    from conductor.planner.trust import resolve

    try:
        opened = resolve(name_or_path, keys)
        if opened.manifest.kind == LM.name:
            from conductor_build.lm.lmbundle import check

            check(opened)
    except BundleError as error:
        _refuse(str(error), error.reason, as_json)
        context.exit(2 if error.reason in (Refusal.ABSENT, Refusal.UNREADABLE) else 1)
    except ConfigError as error:
        _refuse(str(error), "configuration", as_json)
        context.exit(2)
    click.echo(json.dumps({"ok": True, **facts(opened)}) if as_json else describe(opened))


def _refuse(message: str, reason: str, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps({"ok": False, "reason": reason, "error": message}))
    else:
        click.echo(f"REFUSED    {message}", err=True)


def facts(opened: Bundle) -> dict[str, Any]:
    """Everything that the bundle says of itself, and who signed it."""
    return {"id": opened.id, "signer": opened.signer, **opened.manifest.facts()}


def _made_for(manifest: Manifest) -> Iterator[str]:
    if manifest.encoder:
        yield f"features   {manifest.features}"
        yield f"encoder    {manifest.encoder.onnx}"
        yield f"tokenizer  {manifest.encoder.tokenizer}"
    if manifest.prompt:
        yield f"prompt     version {manifest.prompt.version}, {manifest.prompt.digest}"
        yield f"weights    {manifest.precision}"
        yield f"tokenizer  {manifest.files['lm/tokenizer.json'].sha256}"


def describe(opened: Bundle) -> str:
    """The same for people, shorter."""
    manifest, made = opened.manifest, opened.manifest.provenance
    size = sum(file.size for file in manifest.files.values())
    summary = ", ".join(f"{name} {value}" for name, value in sorted(made.summary.items()))
    return "\n".join(
        (
            f"id         {opened.id}",
            f"kind       {manifest.kind}, plan language {manifest.plan_language}",
            *_made_for(manifest),
            f"signed by  {opened.signer}",
            f"made       {manifest.created}, seed {made.seed}",
            f"data       {', '.join(sorted(made.data)) or '-'}",
            f"training   {summary or '-'}",
            f"files      {len(manifest.files)}, {size} bytes",
            "the bundle is whole, and signed by a key that you trust",
        )
    )
