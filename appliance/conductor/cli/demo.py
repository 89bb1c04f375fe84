"""`conductor demo`: the main job for real, on this machine, in about two minutes.

Real: every process of the appliance, the embedded models, the sockets, the policy, the official
`openai` client. Simulated: the frontier vendor, which has no intelligence and answers with canned
words; it stands for a cloud that must not see sensitive data, and it records all it is sent.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson
from rich.console import Console
from rich.table import Table

from conductor.config import Site, load
from conductor.core import Body
from conductor.errors import StartError
from conductor.probe import answers
from conductor.simulated.vendor import SimulatedVendor
from conductor.supervise import PARENT

if TYPE_CHECKING:
    from openai import AsyncOpenAI

START_S = 150.0
SIMULATED_KEY = "SIMULATED_VENDOR_KEY"

IBAN = "IT60 X054 2811 1010 0000 0123 456"
CARD = "4111 1111 1111 1111"
AWS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRETS = (IBAN, IBAN.replace(" ", ""), CARD, CARD.replace(" ", ""), AWS_KEY, "Project Heron")
"""What must not reach the vendor in any of its spellings here."""


@dataclass(frozen=True)
class Asked:
    """One request of the demo. `expect` is the status it should get."""

    title: str
    text: str
    model: str = "conductor"
    extra: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    stream: bool = False
    expect: int = 200


REQUESTS = (
    Asked("nothing sensitive", "What is the capital of Italy? One word."),
    Asked("quality before cost", "Name one planet that has rings.", "conductor-quality"),
    Asked("an IBAN", f"Write one polite sentence asking to pay to {IBAN}."),
    Asked("an API key", f"Why would aws_access_key_id = {AWS_KEY} be refused?", stream=True),
    Asked(
        "a card, and a body that asks for the cloud",
        f"Is {CARD} a valid card number? Yes or no.",
        extra={"fallbacks": ["frontier-large"], "api_base": "http://127.0.0.1:18099/v1"},
    ),
    Asked("a card, straight to the vendor", f"Charge {CARD}.", "frontier-large", expect=403),
    Asked("declared confidential", "Summarise: Project Heron is late.", label="confidential"),
    Asked("local models only", "Say hello in Italian.", "conductor-local", stream=True),
    Asked("one worker by its id", "Name a prime number.", "frontier-mini"),
)


@dataclass(frozen=True)
class Told:
    """What came back for one request."""

    asked: Asked
    status: int
    trace: Body
    text: str
    seconds: float


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("configs/demo"),
    show_default=True,
    help="Directory with the demo's configuration.",
)
def demo(config: Path) -> None:
    """Start everything, send real requests, show who saw what, stop everything.

    Exits 1 when a request went otherwise than it should, or anything sensitive reached the vendor.
    """
    console = Console(width=None if sys.stdout.isatty() else 132)
    pull_models(console, config)
    raise SystemExit(asyncio.run(_demo(config, console)))


def pull_models(console: Console, config: Path) -> None:
    """Fetch the embedded models' files: the first must be had, the others if they can be."""
    from conductor.workers.catalogue import load_catalogue
    from conductor.workers.fetch import locate, pull

    site = load(config)
    catalogue = load_catalogue()
    wanted = [w.embedded_model for w in site.workers if w.embedded_model is not None]
    for place, name in enumerate(wanted):
        if locate(site.appliance.paths.models, catalogue[name]) is not None:
            continue
        console.print(f"fetching the model {name} (once)")
        try:
            pull(catalogue[name], site.appliance.paths.models, _progress(console))
        except StartError as error:
            if place == 0:
                raise
            console.print(f"  not to be had here, going on without it: {error}")


async def _demo(config: Path, console: Console) -> int:
    site = load(config)
    async with SimulatedVendor() as vendor:
        await vendor.start_tcp(port=_vendor_port(site))
        console.print("simulated frontier vendor: listening, records every byte it is sent")
        async with _appliance(site, config, console):
            told = [await _ask(site, asked, console) for asked in REQUESTS]
        _show(console, site, told)
        return _judge(console, told, vendor)


@asynccontextmanager
async def _appliance(site: Site, config: Path, console: Console) -> AsyncIterator[None]:
    """`conductor up` as a process of its own; its processes log to a file."""
    log = site.appliance.paths.state / "demo.log"
    log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    console.print(f"starting: conductor up --config {config} (logs in {_short(log)})")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "conductor", "up"),
        *("--config", str(config), "--log-file", str(log)),
        env={
            **os.environ,
            SIMULATED_KEY: "simulated",
            "PYTHONUNBUFFERED": "1",
            PARENT: str(os.getpid()),
        },
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        admin = (site.appliance.api.admin_host, site.appliance.api.admin_port)
        deadline = time.monotonic() + START_S
        while not await answers(admin, "/readyz"):
            if process.returncode is not None or time.monotonic() > deadline:
                raise StartError(f"the appliance did not start; see {_short(log)}")
            await asyncio.sleep(0.1)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def _ask(site: Site, asked: Asked, console: Console) -> Told:
    from openai import APIStatusError

    console.print(f"asking: {asked.title} ...", highlight=False)
    client = _client(site, trusted=asked.label is not None)
    started_s = time.monotonic()
    try:
        status, trace, text = 200, *await _answer(client, asked)
    except APIStatusError as error:
        code = (error.body or {}).get("code") if isinstance(error.body, dict) else None
        trace = {"label": error.response.headers.get("x-conductor-label", "")}
        status, text = error.status_code, f"refused: {code}"
    finally:
        await client.close()
    return Told(asked, status, trace, text, time.monotonic() - started_s)


async def _answer(client: AsyncOpenAI, asked: Asked) -> tuple[Body, str]:
    headers = {"x-conductor-trace": "true"}
    if asked.label is not None:
        headers["x-conductor-label"] = asked.label
    request: dict[str, Any] = {
        "model": asked.model,
        "messages": [{"role": "user", "content": asked.text}],
        "max_tokens": 48,
        "temperature": 0,
        "extra_headers": headers,
        "extra_body": asked.extra,
    }
    if not asked.stream:
        plain = await client.chat.completions.create(**request)
        return (plain.model_extra or {})["conductor"], plain.choices[0].message.content or ""
    text, trace = "", {}
    stream = await client.chat.completions.create(
        **request, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        else:
            trace = (chunk.model_extra or {})["conductor"]
    return trace, text


def _client(site: Site, *, trusted: bool) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    from conductor.secretrefs import resolve

    key = next(key for key in site.appliance.keys if key.declare_labels is trusted)
    if key.secret is None:
        raise StartError(f"the demo needs the secret of key '{key.id}', not its hash")
    api = site.appliance.api
    return AsyncOpenAI(
        base_url=f"http://{api.host}:{api.port}/v1",
        api_key=resolve(key.secret).reveal(),
        max_retries=0,
    )


def _show(console: Console, site: Site, told: list[Told]) -> None:
    table = Table(title="Requests", show_lines=True, title_justify="left")
    for name in ("request", "label", "allowed", "plan", "used", "s", "USD", "answer"):
        table.add_column(name, no_wrap=name in ("allowed", "plan", "s", "USD"), overflow="fold")
    for one in told:
        trace = one.trace
        table.add_row(
            f"{one.asked.title}\n[dim]{one.asked.model}[/dim]",
            trace.get("label", "").replace("+", "\n+"),
            _allowed(site, trace.get("permitted", [])),
            _plan(trace.get("plan", "none")),
            _used(trace),
            f"{one.seconds:.2f}",
            f"{trace.get('cost_usd', 0):.6f}",
            " ".join(one.text.split())[:40],
        )
    console.print(table)


def _allowed(site: Site, permitted: list[str]) -> str:
    """How many of the pool may see the request, by kind."""
    kinds = [worker.destination.kind for worker in site.workers if worker.id in permitted]
    counts = [f"{kinds.count(kind)} {kind}" for kind in ("local", "remote") if kind in kinds]
    return "\n".join(counts) or "none"


def _plan(text: str) -> str:
    """One line a step, a long instruction cut."""
    lines = [line.split(" ", 2) for line in text.split("\n")]
    return "\n".join(
        " ".join([*line[:2], line[2] if len(line[2]) < 8 else f"{line[2][:6]}..."])
        if len(line) == 3
        else "none"
        for line in lines
    )


def _used(trace: Body) -> str:
    """The workers that answered, when they are others than planned."""
    used = [step["worker"] for step in trace.get("steps", [])]
    planned = [line.split(" ", 1)[0] for line in trace.get("plan", "").split("\n")]
    return "as planned" if used == planned else "\n".join(used) or "nobody"


def _judge(console: Console, told: list[Told], vendor: SimulatedVendor) -> int:
    """Show what the vendor received, and say whether all went as it should."""
    table = Table(
        "#",
        "model",
        "last message it received",
        title="At the simulated vendor",
        title_justify="left",
    )
    for number, request in enumerate(vendor.requests, 1):
        body = orjson.loads(request.body)
        last = body["messages"][-1]["content"]
        table.add_row(str(number), body["model"], " ".join(str(last).split())[:90])
    console.print(table)
    leaked = [secret for secret in SECRETS if secret.encode() in vendor.received]
    odd = [one.asked.title for one in told if one.status != one.asked.expect]
    console.print(
        f"{len(told)} requests; the vendor received {len(vendor.requests)} of them, "
        f"{len(vendor.received)} bytes; sensitive strings among those bytes: {len(leaked)}"
    )
    for title in odd:
        console.print(f"[red]not as it should be: {title}[/red]")
    console.print("[red]FAILED[/red]" if leaked or odd else "[green]all as it should be[/green]")
    return 1 if leaked or odd else 0


def _vendor_port(site: Site) -> int:
    from urllib.parse import urlsplit

    from conductor.core import RemoteEndpoint

    for worker in site.workers:
        if isinstance(worker.endpoint, RemoteEndpoint) and worker.endpoint.base_url:
            port = urlsplit(worker.endpoint.base_url).port
            if port is not None:
                return port
    raise StartError("the demo's workers.yaml names no vendor on this machine")


def _progress(console: Console) -> Any:
    """A callback that prints a line for every tenth of a download."""
    shown: dict[str, int] = {}

    def report(what: str, done: int, total: int) -> None:
        tenth = 10 * done // max(1, total)
        if tenth > shown.get(what, -1):
            shown[what] = tenth
            console.print(f"  {what}: {10 * tenth} %", highlight=False)

    return report


def _short(path: Path) -> str:
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
