"""Options and answers that the verbs of `conductor audit` share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from conductor.audit import anchor, keys
from conductor.audit.stretch import Coverage, Stretch, Trust
from conductor.audit.times import moment

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from conductor.audit.checkpoint import Note

EXIT_INCOMPLETE = 1
EXIT_NO_LOG = 2

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]

directory_argument: Decorator = click.argument(
    "directory", type=click.Path(file_okay=False, path_type=Path)
)


class Moment(click.ParamType[str]):
    """ISO 8601, or a duration back from now."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            return moment(str(value), datetime.now(UTC))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True)
class Noted:
    """What the reader has from elsewhere, as the command line gives it."""

    head: str | None
    anchors: tuple[Path, ...]
    signed_by: Path | None

    @classmethod
    def take(cls, given: dict[str, Any]) -> Noted:
        """Take its options out of all that were given."""
        return cls(**{field.name: given.pop(field.name) for field in fields(cls)})

    def read_anchors(self) -> tuple[Note, ...]:
        """The checkpoints; raises `AuditError`."""
        return tuple(anchor.read(path) for path in self.anchors)

    def read_key(self) -> Ed25519PublicKey | None:
        """The public key; raises `ConfigError`."""
        return keys.load_public(self.signed_by) if self.signed_by else None

    @property
    def trust(self) -> Trust:
        return Trust(self.head, self.read_key(), self.read_anchors())


def opened_stretch(given: dict[str, Any]) -> Stretch:
    """The stretch that the options of `stretch_options`, taken out of all that were given, mean.

    Raises:
        AuditError: there is no log, or an anchor is none.
        ConfigError: the key is none.
    """
    trust = Noted.take(given).trust
    since, until = given.pop("since"), given.pop("until")
    if since and until and since >= until:
        raise click.BadParameter(f"{until} is not after {since}", param_hint="--to")
    return Stretch(given.pop("directory"), since, until, trust)


def noted_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--head`, `--anchor` and `--signed-by`: what was noted elsewhere."""
    return _all(
        function,
        click.option("--head", metavar="HASH", callback=_head,
                     help="A head noted earlier and kept elsewhere. Proves that nothing up to it "
                     "was cut off or written anew, which the chain alone cannot."),
        click.option("--anchor", "anchors", multiple=True, metavar="FILE",
                     type=click.Path(dir_okay=False, path_type=Path),
                     help="A signed checkpoint kept elsewhere, as `conductor audit head` gave it: "
                     "proves the same. May be repeated."),
        click.option("--signed-by", metavar="audit.pub",
                     type=click.Path(dir_okay=False, path_type=Path),
                     help="The public key that has to stand behind the checkpoints of the log."),
    )  # fmt: skip


def stretch_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """DIRECTORY, `--from`, `--to`, and what was noted elsewhere."""
    return _all(
        noted_options(function),
        directory_argument,
        click.option("--from", "since", type=Moment(), metavar="TIME",
                     help="From this time on: ISO 8601 (UTC if it names no zone), or 7d for seven "
                     "days back.  [default: the log's first record]"),
        click.option("--to", "until", type=Moment(), metavar="TIME",
                     help="Before this time.  [default: to the log's last record]"),
    )  # fmt: skip


def _all(function: Callable[..., Any], *options: Decorator) -> Callable[..., Any]:
    for option in reversed(options):
        function = option(function)
    return function


def _head(_context: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    digits = "0123456789abcdefABCDEF"
    if value is not None and (len(value) != 64 or not all(digit in digits for digit in value)):
        raise click.BadParameter("64 hexadecimal digits, as printed by `conductor audit verify`.")
    return value


def completeness(coverage: Coverage) -> list[str]:
    """What the log proves of the stretch, in lines for people."""
    numbers = f", numbers {coverage.first_seq} to {coverage.last_seq}" if coverage.records else ""
    lines = [
        f"from      {coverage.since or coverage.log_from or '-'}",
        f"to        {coverage.until or coverage.log_until or '-'}",
        f"records   {coverage.records}{numbers}",
        f"head      {coverage.head} at record {coverage.head_seq}",
    ]
    if coverage.unclean_ends:
        lines.append(f"crashes   {coverage.unclean_ends}: sendings are recorded, some ends are not")
    lines += [f"GAP       {gap.explanation}" for gap in coverage.gaps]
    if not coverage.complete:
        return [*lines, "NOT COMPLETE: there may be more than is shown"]
    anchored = "" if coverage.anchored else " (that its end was not cut: --anchor, --head)"
    return [*lines, f"complete: the chain holds, and nothing is missing{anchored}"]
