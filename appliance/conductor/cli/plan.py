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
@json_option
def plan(
    question: str, config: Path, model: str, key_id: str | None, label: str | None, as_json: bool
) -> None:
    """Explain what would happen to QUESTION: its label, who may see it, and the plan.

    Runs by itself from the configuration; no process needs to be up and nothing is called. The
    planner process is asked when it runs, else the default engine plans. '-' reads standard input.
    """
    text = sys.stdin.read() if question == "-" else question
    body = asyncio.run(_explain(text, config, model, key_id, label))
    if as_json:
        click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2))
    else:
        _show(body)
    raise SystemExit(0 if body["plan"] is not None else 1)


async def _explain(
    question: str, config: Path, model: str, key_id: str | None, label: str | None
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
            max_steps=appliance.limits.max_steps,
        )
        message = {"role": "user", "content": question}
        raw = orjson.dumps({"model": model, "messages": [message]})
        chat = parse_chat(raw)
        return await explain(intake, site.policy.lattice, chat, raw, key, label, "plan")
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
    console.print(f"plan by    {body['engine']} (in {body['engine_where']})")
    console.print(body["plan"], markup=False)
    if body["alternates"]:
        console.print(f"fallback   {', '.join(body['alternates'])}")
