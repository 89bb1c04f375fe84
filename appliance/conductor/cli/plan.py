"""`conductor plan "..."`: label, verdicts and plan of a request, without calling anything."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson
from rich.console import Console

from conductor.cli.options import config_option, json_option
from conductor.cli.planshown import show
from conductor.core import Body

if TYPE_CHECKING:
    from conductor.core import PlanRequest
    from conductor.planner.engine import PlanEngine, Planned
    from conductor.settings import Appliance


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
    planner process is asked when it runs, else the configured engine is loaded here. '-' reads
    standard input.
    """
    text = sys.stdin.read() if question == "-" else question
    body = asyncio.run(_explain(text, config, model, key_id, label, cost_weight))
    if as_json:
        click.echo(orjson.dumps(body, option=orjson.OPT_INDENT_2))
    else:
        show(Console(), body)
    raise SystemExit(0 if body["plan"] is not None else 1)


async def _explain(
    question: str,
    config: Path,
    model: str,
    key_id: str | None,
    label: str | None,
    cost_weight: str | None,
) -> Body:
    from conductor.activation.startup import starting
    from conductor.active import Active
    from conductor.api.explain import explain
    from conductor.chat.request import parse_chat
    from conductor.flow.artifacts import ArtifactStore
    from conductor.logs import configure
    from conductor.run.intake import Intake
    from conductor.run.memory import Memory
    from conductor.run.services import make_planner, make_scanner
    from conductor.workers.pool import Pool

    site = starting(config).site
    appliance = site.appliance
    configure("console", "warning")  # to standard error: the output is the explanation alone
    keys = {key.id: key for key in appliance.keys}
    if key_id is not None and key_id not in keys:
        raise click.BadParameter(f"keys are {', '.join(keys)}", param_hint="--key")
    key = keys[key_id] if key_id else appliance.keys[0]
    scanner, planner = make_scanner(appliance), make_planner(appliance, _fallback(appliance))
    await scanner.start()
    await planner.start()
    try:
        intake = Intake(
            active=Active(site),
            pool=Pool(site.workers),
            scanner=scanner,
            planner=planner,
            memory=Memory(ArtifactStore()),
            limits=appliance.limits,
            cost_weights=appliance.planner.cost_weight,
        )
        message = {"role": "user", "content": question}
        raw = orjson.dumps({"model": model, "messages": [message]})
        chat = parse_chat(raw)
        return await explain(intake, chat, raw, key, label, "plan", cost_weight)
    finally:
        await planner.close()
        await scanner.close()


def _fallback(appliance: Appliance) -> PlanEngine | None:
    return None if appliance.planner.engine == "default" else _Here(appliance)


class _Here:
    """The configured engine in this process, loaded when no planner process answers. Where it
    cannot be loaded the written-down rule plans, and standard error says why."""

    def __init__(self, appliance: Appliance) -> None:
        self._appliance = appliance
        self.name = appliance.planner.engine

    async def ready(self) -> bool:
        return True

    async def plan(self, request: PlanRequest) -> Planned:
        return await self._load().plan(request)

    def _load(self) -> PlanEngine:
        from conductor.errors import ConductorError
        from conductor.planner.default import DefaultEngine
        from conductor.planner.server import load_engine

        try:
            return load_engine(self._appliance.planner, self._appliance.paths.models)
        except ConductorError as error:
            click.echo(f"the written-down rule plans, without {self.name!r}: {error}", err=True)
            return DefaultEngine()
