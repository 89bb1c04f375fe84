"""`conductor-build verify --gpu`: a box looks at itself."""

from __future__ import annotations

import json
from pathlib import Path

import click

from conductor_build.verify.finding import Finding, Machine


@click.command()
@click.argument(
    "bundle", required=False, type=click.Path(path_type=Path, file_okay=False, exists=True)
)
@click.option("--key", "keys", type=click.Path(path_type=Path, dir_okay=False), multiple=True,
              metavar="FILE", help="Public key of somebody who may have signed BUNDLE, whose "
              "machine code is run; may be given again.")  # fmt: skip
@click.option("--gpu", is_flag=True, required=True, help="Look at the GPU of this box.")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), default="cuda", show_default=True,
              help="cpu: the reference ops, to see that the check itself works.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
              help="Of the random inputs.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def verify(
    context: click.Context,
    bundle: Path | None,
    keys: tuple[Path, ...],
    gpu: bool,
    device: str,
    seed: int,
    as_json: bool,
) -> None:
    """Look once at a new GPU box: pass, fail or not here for driver, architecture, torch, Triton,
    the machine code in BUNDLE, every op against float64, masked sampling, the plan automaton, CUDA
    graphs, plans against the CPU, TensorRT-LLM. Says nothing of speed: kernels/bench does.

    BUNDLE is checked first, as conductor-build bundle verify does.

    \b
    Exit codes:
      0  whatever is here passes
      1  something fails
      2  there is no GPU that torch can use
    """
    from conductor_build.verify.features import exit_code, look

    assert gpu
    machine = Machine(device, bundle, seed, keys)
    findings: list[Finding] = []
    for one in look(machine):
        findings.append(one)
        if not as_json:
            click.echo(f"{one.state.upper():9} {one.feature:22} {one.said}")
    code = exit_code(findings, machine)
    if as_json:
        told = [{"feature": f.feature, "state": f.state, "said": f.said} for f in findings]
        click.echo(json.dumps({"ok": code == 0, "findings": told}))
    context.exit(code)
