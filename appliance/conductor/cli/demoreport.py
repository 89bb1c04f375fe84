"""What `conductor demo` shows: who saw what, and whether all went as it should."""

from __future__ import annotations

import orjson
from rich.console import Console
from rich.table import Table

from conductor.cli.demorequests import SECRETS, Told
from conductor.config import Site
from conductor.core import Body
from conductor.simulated.vendor import SimulatedVendor


def show_answers(console: Console, site: Site, told: list[Told]) -> None:
    """One row a request: its label, who might see it, the plan, and who answered."""
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


def judge(console: Console, told: list[Told], vendor: SimulatedVendor) -> int:
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
    if not vendor.requests:
        odd.append("the vendor was never called, so that nothing is shown by its silence")
    console.print(
        f"{len(told)} requests; calls that the vendor got: {len(vendor.requests)}, "
        f"{len(vendor.received)} bytes; sensitive strings among those bytes: {len(leaked)}"
    )
    for title in odd:
        console.print(f"[red]not as it should be: {title}[/red]")
    console.print("[red]FAILED[/red]" if leaked or odd else "[green]all as it should be[/green]")
    return 1 if leaked or odd else 0
