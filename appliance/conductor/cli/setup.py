"""`conductor setup`: a first configuration from five answers."""

from __future__ import annotations

import os
from pathlib import Path

import click

from conductor.box.command import nothing_runs, run
from conductor.box.place import Place
from conductor.cli.check import check
from conductor.cli.options import root_option
from conductor.cli.setupanswers import (
    ID,
    PLAIN,
    SOCKET,
    Answers,
    Away,
    Listen,
    LocalModel,
    Vendor,
    range_problem,
    read_answers,
)
from conductor.cli.setupwrite import set_up
from conductor.errors import StartError


@click.command()
@click.option(
    "--answers",
    "file",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Take the answers from a YAML file instead of asking.",
)
@click.option(
    "--force", is_flag=True, help="Write over a configuration, which is kept as .bak-TIME."
)
@root_option
@click.pass_context
def setup(context: click.Context, file: Path | None, root: Path, *, force: bool) -> None:
    """Write a first configuration to /etc/conductor. Nothing is started.

    \b
    Asks where applications connect, which model servers of your own there are, whether the
    appliance runs a small model itself, whether anything may leave, and whether names of persons
    are sought. Shows the first API key once; only its hash is kept.
    """
    place = Place(root.absolute())
    if place.root == Path("/") and os.geteuid() != 0:
        raise StartError("the configuration belongs to root: sudo conductor setup")
    answers = read_answers(file) if file else asked()
    done = set_up(place, answers, run if place.running else nothing_runs, force=force)
    for line in done.said:
        click.echo(line)
    if place.root == Path("/"):
        context.invoke(check, config=place.config, as_json=False)
    click.echo(f"\nThe first API key, shown this once:\n\n    {done.key}\n")
    click.echo("Next: systemctl enable --now conductor.target, then conductor doctor")


def asked() -> Answers:
    """The five questions."""
    listen = _listen()
    workers = tuple(_models())
    embedded = click.confirm("3. Run a small model here, without a server of your own?", True)
    away, vendor = _away()
    names = click.confirm("5. Seek names of persons and addresses in requests?", False)
    if not (embedded or workers or vendor):
        raise StartError("no model would be there to answer: run setup again and name one")
    return Answers(listen, workers, embedded, away, vendor, names)


def _listen() -> Listen:
    click.echo("1. Where do applications connect?")
    click.echo("   socket: a Unix socket behind nginx, which does TLS (the stricter way)")
    click.echo("   tcp: a port of this machine, without TLS, for address ranges that you name")
    if click.prompt("  ", default="socket", type=click.Choice(["socket", "tcp"])) == "socket":
        return Listen()
    port = click.prompt("   port", default=8443, type=click.IntRange(1, 65_535))
    return Listen(port, tuple(click.prompt("   clients, as 192.0.2.0/24 ...", value_proc=_ranges)))


def _ranges(text: str) -> list[str]:
    ranges = text.replace(",", " ").split()
    for one in ranges:
        if problem := range_problem(one):
            raise click.UsageError(problem)
    if not ranges:
        raise click.UsageError("name at least one range")
    return ranges


def _models() -> list[LocalModel]:
    click.echo("2. Model servers of your own on this machine (vLLM, SGLang, llama.cpp, ...)?")
    text = click.prompt("   as NAME=/path/of.sock ..., or nothing", default="", show_default=False)
    return [_model(entry) for entry in text.replace(",", " ").split()]


def _model(entry: str) -> LocalModel:
    name, _, path = entry.partition("=")
    if not ID.fullmatch(name) or not SOCKET.fullmatch(path):
        raise StartError("a model server is given as NAME=/path/of.sock, NAME in lower case")
    return LocalModel(name, path, name)


def _away() -> tuple[Away, Vendor | None]:
    click.echo("4. May anything leave this machine?")
    click.echo("   none: no remote model is configured; air-gapped: nothing can leave, whatever is")
    click.echo("   configured; vendor: a remote model, as far as policy.yaml allows")
    choice = click.prompt("  ", default="none", type=click.Choice(["none", "air-gapped", "vendor"]))
    if choice != "vendor":
        return ("air-gapped" if choice == "air-gapped" else "none"), None
    provider, model = _plain("provider"), _plain("model")
    base_url = _plain("address, or nothing for the provider's", default="")
    key_file = str(click.prompt("   file with its key, or nothing for later", default=""))
    return "vendor", Vendor("remote", provider, model, base_url=base_url, key_file=key_file)


def _plain(name: str, default: str | None = None) -> str:
    text = str(click.prompt(f"   {name}", default=default, show_default=False))
    if text != default and not PLAIN.fullmatch(text):
        raise StartError("that cannot stand in the configuration: letters, digits and ./:_@+- only")
    return text
