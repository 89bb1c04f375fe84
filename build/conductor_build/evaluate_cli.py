"""`conductor-build evaluate`: how well a trained conductor does on prompts that it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.errors import BundleError, ConductorError
from conductor.planner.manifest import EncoderId, Refusal

if TYPE_CHECKING:
    from conductor.planner.bundle import Bundle
    from conductor_build.evaluate.judge import Evaluation
    from conductor_build.evaluate.unseen import Vectors
    from conductor_build.vectors import Reader

_FOLDER = click.Path(path_type=Path, file_okay=False)
_FILE = click.Path(path_type=Path, dir_okay=False)


def names_with_commas(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    """Names with commas between them."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or len(set(names)) < len(names):
        raise click.BadParameter("give at least one name, each once, with commas between them")
    return names


def _lambdas(context: click.Context, option: click.Parameter, text: str | None) -> Any:
    if text is None:
        return None
    try:
        lambdas = tuple(float(part) for part in text.split(","))
    except ValueError:
        raise click.BadParameter("give numbers with commas between them") from None
    if len(set(lambdas)) < len(lambdas) or not all(0 <= lam < math.inf for lam in lambdas):
        raise click.BadParameter("a lambda is 0 or more and stands once")
    return lambdas


def judging_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """What `evaluate` and `crossvalidate` are both told."""
    options = (
        click.option("--data", type=_FOLDER, required=True, help="Folder of outcomes."),
        click.option(
            "--out", type=_FOLDER, required=True, help="Where the report goes."
        ),
        click.option(
            "--lambda", "lambdas", metavar="X,Y", callback=_lambdas,
            help="Cost preferences to judge at.  [default: those of the recipe]",
        ),
        click.option(
            "--max-rounds", type=click.IntRange(1, 5),
            help="Most rounds a request may take.  [default: as in training]",
        ),
        click.option(
            "--calibration", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
            help="Prompts on which the card of a worker new to the conductor is measured.",
        ),
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True),
        click.option(
            "--draws", type=click.IntRange(min=1), default=2000, show_default=True,
            help="Bootstrap draws behind each interval.",
        ),
        click.option(
            "--models-dir", type=_FOLDER, default=Path("var/models"), show_default=True,
            envvar="CONDUCTOR_MODELS_DIR", help="Where the sentence encoder's files stand.",
        ),
    )  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


@click.command()
@click.argument("name_or_path", metavar="BUNDLE")
@judging_options
@click.option(
    "--pool", callback=names_with_commas, metavar="A,B",
    help="Workers to plan over.  [default: the recipe's, if DATA has them all, else every worker "
    "that answered every prompt]",
)  # fmt: skip
@click.option("--local-only", is_flag=True, help="Of the pool, only workers on the premises.")
@click.option(
    "--key", "keys", type=_FILE, multiple=True, metavar="FILE",
    help="Public key of somebody who may have signed BUNDLE; may be given again.",
)  # fmt: skip
@click.option("--allow-seen", is_flag=True, help="Judge prompts of its training too, and say so.")
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    name_or_path: str,
    data: Path,
    out: Path,
    keys: tuple[Path, ...],
    models_dir: Path,
    **told: Any,
) -> None:
    """Judge BUNDLE, a directory or `pocket` for the shipped one, on the outcomes in DATA.

    Beside every baseline, on the same prompts; prompts that training saw are left out.

    \b
    Exit codes:
      0  the report is written
      1  BUNDLE is refused, or there is nothing to judge it on
      2  there is no bundle, or it, a key, the data or the encoder cannot be read
    """
    try:
        evaluation = _evaluate(name_or_path, data, out, keys, models_dir, told)
    except ConductorError as error:
        click.echo(str(error), err=True)
        context.exit(exit_code(error))
    show(evaluation, out)


def exit_code(error: ConductorError) -> int:
    """As `bundle verify`: 1 for a judgement against what was given, 2 for what cannot be read."""
    from conductor_build.baselines.plays import EvaluationError

    if isinstance(error, BundleError):
        return 2 if error.reason in (Refusal.ABSENT, Refusal.UNREADABLE) else 1
    return 1 if isinstance(error, EvaluationError) else 2


def _evaluate(
    name_or_path: str,
    data: Path,
    out: Path,
    keys: Sequence[Path],
    models_dir: Path,
    told: Mapping[str, Any],
) -> Evaluation:
    from conductor_build.evaluate.opened import Opened
    from conductor_build.evaluate.unseen import Options, judge
    from conductor_build.outcomes import load

    conductor = Opened.of(trusted(name_or_path, keys))
    table = load(data)
    encoder = conductor.bundle.manifest.encoder
    assert encoder, "`trusted` opens pocket conductors only"
    vectors = vectors_for(encoder, models_dir, out)
    evaluation, provenance = judge(conductor, table, vectors, Options(**told))
    write(out, evaluation, provenance)
    return evaluation


def trusted(name_or_path: str, keys: Sequence[Path]) -> Bundle:
    """A bundle that this release can run. Raises `BundleError`, `ConfigError`."""
    from conductor.planner.bundle import Runtime
    from conductor.planner.encoderfiles import known_encoders
    from conductor.planner.features import FEATURES
    from conductor.planner.trust import resolve
    from conductor.workers.catalogue import load_catalogue

    runtime = Runtime(features=FEATURES, encoders=known_encoders(load_catalogue()).keys())
    return resolve(name_or_path, keys, runtime)


def vectors_for(encoder: EncoderId, models_dir: Path, out: Path) -> Vectors:
    """Prompt vectors by this encoder, kept in `out`, with progress on the terminal.

    Raises `StartError` when its files are not there, `OutputError` when `out` cannot be written.
    """
    from conductor.planner.encoderfiles import load_encoder

    reader = load_encoder(models_dir, encoder)
    make_folder(out)
    return vectors_by(reader, out)


def vectors_by(reader: Reader, out: Path) -> Vectors:
    """The same by an encoder that is loaded."""
    from conductor_build.train_progress import watching
    from conductor_build.vectors import CACHE, prompt_vectors

    def vectors(questions: Sequence[str]) -> Any:
        with watching() as watch:
            return prompt_vectors(questions, reader, out / CACHE, watch.encoded)

    return vectors


def make_folder(out: Path) -> None:
    """Raises `OutputError`."""
    from conductor_build.files import OutputError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError:
        raise OutputError(f"{out} cannot be made: give another --out") from None


def write(out: Path, evaluation: Evaluation, provenance: Mapping[str, object]) -> None:
    """The report's three files. Raises `OutputError`."""
    from conductor_build.files import OutputError
    from conductor_build.report.write import write_report

    try:
        write_report(out, evaluation, provenance)
    except OSError:
        raise OutputError(f"the report cannot be written to {out}: is the disk full?") from None


def show(evaluation: Evaluation, out: Path) -> None:
    """The result for people, and where all of it is."""
    from conductor_build.report.markdown import summary
    from conductor_build.report.write import JSON, MARKDOWN, PICTURE

    click.echo(summary(evaluation))
    click.echo(f"{out}: {JSON}, {MARKDOWN}, {PICTURE}")
