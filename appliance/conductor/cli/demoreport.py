"""What `conductor demo` shows: who saw what, and whether all went as it should."""

from __future__ import annotations

import orjson
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conductor.cli.demorequests import SECRETS, Told
from conductor.config import Site
from conductor.core import Body
from conductor.simulated.vendor import SimulatedVendor


def show_answers(console: Console, site: Site, told: list[Told]) -> None:
    """One row a request: its label, who might see it, the plan of every round, who answered."""
    table = Table(title="Requests", show_lines=True, title_justify="left")
    for name in ("request", "label", "allowed", "by", "plan, round by round", "s", "USD", "answer"):
        whole = name in ("allowed", "plan, round by round", "s", "USD")
        table.add_column(name, no_wrap=whole, overflow="fold")
    for one in told:
        trace = one.trace
        table.add_row(
            f"{one.asked.title}\n[dim]{one.asked.model}[/dim]",
            trace.get("label", "").replace("+", "\n+"),
            _allowed(site, trace.get("permitted", [])),
            "\n".join(dict.fromkeys(_engines(trace))),
            "\n".join(round_lines(trace)) or "none",
            f"{one.seconds:.2f}",
            f"{trace.get('cost_usd', 0):.6f}",
            escape(" ".join(one.text.split())[:40]),
        )
    console.print(table)
    console.print(
        "by: the engine that planned. look: the answers of the round were held back and compared, "
        "then the next round was planned; 'keep' gives one of them to the client.",
        style="dim",
    )
    _show_planners(console, site, told)


def _show_planners(console: Console, site: Site, told: list[Told]) -> None:
    """Say aloud when another engine planned than the one that the site asks for."""
    wanted = site.appliance.planner.engine
    found = {engine for one in told for engine in _engines(one.trace)}
    if wanted not in found:
        console.print(
            f"[yellow]The engine {wanted!r} planned nothing: see 'planner' above, and the log."
            "[/yellow]"
        )


def _allowed(site: Site, permitted: list[str]) -> str:
    """How many of the pool may see the request, by kind."""
    kinds = [worker.destination.kind for worker in site.workers if worker.id in permitted]
    counts = [f"{kinds.count(kind)} {kind}" for kind in ("local", "remote") if kind in kinds]
    return "\n".join(counts) or "none"


def _engines(trace: Body) -> list[str]:
    """Who planned each round. A request for a worker by its id is not planned."""
    return [one["engine"] for one in trace.get("rounds", [])]


def round_lines(trace: Body) -> list[str]:
    """What each round did, such as `1 qwen, look`, `2 keep qwen`; a line for a further step."""
    answered = {step["step"]: step["worker"] for step in trace.get("steps", [])}
    lines, first = [], 0
    for number, one in enumerate(trace.get("rounds", []), 1):
        steps = [line.split(" ", 2) for line in one["plan"].split("\n") if line]
        names = [_who(step[0], answered.get(first + place)) for place, step in enumerate(steps)]
        first += len(steps)
        said = _kept(steps, answered, trace) or _joined(steps, names)
        lines.append(f"{number} {said}" + ", look" * bool(one["look"]))
    if trace.get("stood_in_for"):
        lines.append(f"  failed: kept {answered.get(trace['answer_step'])}")
    return lines


def _kept(steps: list[list[str]], answered: dict[int, str], trace: Body) -> str:
    """What a round that calls no worker does: it keeps the answer that stands, or the one that a
    vote names. Empty for any other round."""
    if any(step[0] != "vote" for step in steps):
        return ""
    chosen = [int(sign) for step in steps for sign in step[1].split(",") if sign.isdigit()]
    named = [answered.get(step, "it") for step in chosen or [trace.get("answer_step", -1)]]
    return f"keep {' = '.join(dict.fromkeys(named))}"


def _who(planned: str, answered: str | None) -> str:
    """The worker of a step, and who was to answer where that was another."""
    if answered in (None, "", planned):
        return planned
    return f"{answered} (for {planned})"


def _joined(steps: list[list[str]], names: list[str]) -> str:
    """`+` before a step that runs beside the others, `>` before one that is shown earlier steps."""
    waits = [any(sign.isdigit() for sign in step[1].split(",")) for step in steps]
    parts = [f"\n  {'>' if wait else '+'} {name}" for wait, name in zip(waits, names, strict=True)]
    return "".join(parts).removeprefix("\n  + ")


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
        table.add_row(str(number), escape(body["model"]), escape(" ".join(str(last).split())[:90]))
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
