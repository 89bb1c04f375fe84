"""`conductor plan "..."`: label, verdicts and plan of a request, without calling anything."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click
import orjson
from rich.console import Console
from rich.table import Table

from conductor.cli.options import config_option, json_option
from conductor.core import Body


@click.command("plan")
@click.argument("question")
@config_option
@click.option("--model", default="conductor", show_default=True, help="Model name to ask for.")
@click.option("--key", "key_id", help="Id of the API key to ask as.  [default: the first]")
@click.option("--label", help="Label to declare, e.g. confidential+pii (the key must be trusted).")
@click.option(
    "--cost-weight",
    metavar="NUMBER",
    help="What quality is worth, e.g. 0.1, in place of the model's own (the key must be allowed).",
)
@json_option
def plan(
    question: str,
    config: Path,
    model: str,
    key_id: str | None,
    label: str | None,
    cost_weight: str | None,
    as_json: bool,
) -> None:
    """Explain what would happen to QUESTION: its label, who may see it, and the first plan.

    Runs by itself from the configuration; no process needs to be up and nothing is called. The
    planner process is asked when it runs, else the default engine plans. '-' reads standard input.
    """
    text = sys.stdin.read() if question == "-" else question
    body = asyncio.run(_explain(text, config, model, key_id, label, cost_weight))
    if as_json:
        click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2))
    else:
        _show(body)
    raise SystemExit(0 if body["plan"] is not None else 1)


async def _explain(
    question: str,
    config: Path,
    model: str,
    key_id: str | None,
    label: str | None,
    cost_weight: str | None,
) -> Body:
    from conductor.api.explain import explain
    from conductor.chat.request import parse_chat
    from conductor.config import load
    from conductor.logs import configure
    from conductor.run.intake import Intake
    from conductor.run.services import make_planner, make_scanner
    from conductor.workers.pool import Pool

    site = load(config)
    appliance = site.appliance
    configure("console", "warning")  # to standard error: the output is the explanation alone
    keys = {key.id: key for key in appliance.keys}
    if key_id is not None and key_id not in keys:
        raise click.BadParameter(f"keys are {', '.join(keys)}", param_hint="--key")
    key = keys[key_id] if key_id else appliance.keys[0]
    scanner, planner = make_scanner(appliance), make_planner(appliance)
    await scanner.start()
    await planner.start()
    try:
        intake = Intake(
            policy=site.policy,
            pool=Pool(site.workers),
            scanner=scanner,
            planner=planner,
            limits=appliance.limits,
            cost_weights=appliance.planner.cost_weight,
        )
        message = {"role": "user", "content": question}
        raw = orjson.dumps({"model": model, "messages": [message]})
        chat = parse_chat(raw)
        lattice = site.policy.lattice
        return await explain(intake, lattice, chat, raw, key, label, "plan", cost_weight)
    finally:
        await planner.close()
        await scanner.close()


def _show(body: Body) -> None:
    console = Console()
    console.print(f"label      [bold]{body['label']}[/bold]")
    for finding in body["detectors"]:
        console.print(f"detector   {finding['id']} x {finding['count']} ({finding['view']})")
    for reason in body["unscanned"]:
        console.print(f"unscanned  {reason}")
    table = Table("worker", "decision", "because")
    for verdict in body["verdicts"]:
        colour = "green" if verdict["decision"] == "allow" else "red"
        table.add_row(
            verdict["worker"],
            f"[{colour}]{verdict['decision']}[/{colour}]",
            f"{verdict['reason']}\n[dim]{verdict['rule']} at {verdict['position']}[/dim]",
        )
    console.print(table)
    if body["plan"] is None:
        console.print(f"[red]refused[/red]    {body['refusal']['message']}")
        return
    console.print(_cards(body["cards"]))
    console.print(f"plan by    {body['engine']} (in {body['engine_where']})")
    console.print(body["plan"], markup=False)
    if body["look"]:
        console.print(
            "then       the answers are looked at before one is accepted or more are asked"
        )
    if body["alternates"]:
        console.print(f"fallback   {', '.join(body['alternates'])}")
    console.print(f"weight     {body['cost_weight']:g} of quality for 1 USD per 1,000 requests")
    if body["estimates"]:
        _show_estimates(console, body["estimates"])


def _cards(cards: list[Body]) -> Table:
    """What the engine saw of every worker, which it knew by number only, and what it thought."""
    table = Table("worker", "where", "skill", "USD per Mtok", "right", "asked")
    for number, card in enumerate(cards):
        skill = ", ".join(f"{domain} {chance:.2f}" for domain, chance in card["skill"].items())
        table.add_row(
            f"{number} {card['worker']}",
            "local" if card["local"] else "remote",
            skill or "-",
            f"{card['input_usd_per_mtok']:g} in, {card['output_usd_per_mtok']:g} out",
            _chance(card["chance_right"]),
            _chance(card["chance_chosen"]),
        )
    return table


def _chance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _show_estimates(console: Console, estimates: Body) -> None:
    cost = estimates["expected_cost_usd"]
    console.print(f"quality    {estimates['expected_quality']:.2f} expected, for {cost:.6f} USD")
    console.print(f"accept     {estimates['chance_accept']:.2f} to keep the answer that stands")
