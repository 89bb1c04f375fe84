"""`conductor-build evaluate`: how well a trained conductor does on prompts that it never saw.

A pocket conductor is judged on a folder of outcomes; a language model, with `--recipe`, by playing
its plans on the workers that the recipe names (`evaluate/lmcommand.py`).
"""

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
    """What `crossvalidate` is told, and `evaluate` too."""
    data = click.option("--data", type=_FOLDER, required=True, help="Folder of outcomes.")
    return data(_shared_options(function))


def _shared_options(function: Callable[..., Any]) -> Callable[..., Any]:
    options = (
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
@click.option(
    "--data", type=_FOLDER,
    help="Folder of outcomes; for a language model, where the recipe's paths begin.",
)  # fmt: skip
@_shared_options
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
@click.option(
    "--recipe", type=_FILE, metavar="RECIPE",
    help="LM only, and needed there: the recipe that BUNDLE was trained by.",
)  # fmt: skip
@click.option(
    "--games", type=click.IntRange(1, 100_000), metavar="N",
    help="LM only: held-out games to play.  [default: as many as the recipe reports on]",
)  # fmt: skip
@click.option(
    "--choosing", type=click.IntRange(1, 100_000), metavar="N",
    help="LM only: training games that every worker answers, for choosing baselines.  "
    "[default: 200; 50 with live workers]",
)  # fmt: skip
@click.option("--base", metavar="MODEL", help="LM only: as in training.")
@click.option(
    "--max-cost-usd", type=click.FloatRange(0),
    help="LM only: stop before live workers have cost more; the same command then goes on.",
)  # fmt: skip
@click.pass_context
def evaluate(
    context: click.Context,
    /,
    name_or_path: str,
    data: Path | None,
    out: Path,
    keys: tuple[Path, ...],
    models_dir: Path,
    **told: Any,
) -> None:
    """Judge BUNDLE, a directory or `pocket` for the shipped one, on the outcomes in DATA, beside
    every baseline, on the same prompts; prompts that training saw are left out.

    With --recipe BUNDLE is a language model: a bundle, the folder of its training, or a model in
    Hugging Face's form. Its plans are played on the recipe's workers, beside its untrained self and
    every baseline, in games that training does not draw.

    \b
    Exit codes:
      0  the report is written
      1  BUNDLE is refused, or there is nothing to judge it on
      2  there is no bundle, or it, a key, the data or the encoder cannot be read
    """
    of_lm = {name: told.pop(name) for name in _OF_LM}
    _check_options(context, data, lm=of_lm["recipe"] is not None)
    try:
        if of_lm["recipe"] is not None:
            click.echo(_evaluate_lm(name_or_path, data, out, keys, models_dir, {**told, **of_lm}))
            return
        assert data is not None, "checked"
        evaluation = _evaluate(name_or_path, data, out, keys, models_dir, told)
    except ConductorError as error:
        click.echo(_with_advice(error), err=True)
        context.exit(exit_code(error))
    show(evaluation, out)


_TOLD = (
    "games", "lambdas", "choosing", "base", "max_cost_usd", "allow_seen", "seed", "draws",
)  # fmt: skip
_OF_LM = ("recipe", "games", "choosing", "base", "max_cost_usd")
_OF_POCKET = ("pool", "local_only", "max_rounds", "calibration")


def _check_options(context: click.Context, data: Path | None, *, lm: bool) -> None:
    """That nothing is told that would have no effect. Raises `click.UsageError`."""
    for name in _OF_POCKET if lm else _OF_LM:
        given = context.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE":
            what = "pocket conductors" if lm else "language models, which need --recipe"
            raise click.UsageError(f"--{name.replace('_', '-')} is for {what}")
    if not lm and data is None:
        raise click.UsageError("--data is needed: a folder of outcomes")


def _with_advice(error: ConductorError) -> str:
    if isinstance(error, BundleError) and error.reason == Refusal.KIND:
        return f"{error} (a language model is judged with --recipe)"
    return str(error)


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


def _evaluate_lm(
    path: str,
    data: Path | None,
    out: Path,
    keys: Sequence[Path],
    models_dir: Path,
    told: Mapping[str, Any],
) -> str:
    """Judge a language model and write its report; returns what to print."""
    from conductor_build.evaluate.lmcommand import Asked, run
    from conductor_build.train_cli import need_torch

    need_torch()
    make_folder(out)
    asked = Asked(
        path=Path(path), recipe=told["recipe"], out=out, models=models_dir, data=data or Path(),
        keys=keys, **{name: told[name] for name in _TOLD},
    )  # fmt: skip
    return run(asked, lambda text: click.echo(text, err=True))


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
