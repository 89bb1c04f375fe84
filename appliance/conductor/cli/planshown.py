"""How `conductor plan` reads on a terminal: who may see it, who was considered, what is done."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conductor.core import Body


def show(console: Console, body: Body) -> None:
    """Print what `api.explain.explain` answers."""
    console.print(f"label      [bold]{body['label']}[/bold]")
    for finding in body["detectors"]:
        console.print(f"detector   {finding['id']} x {finding['count']} ({finding['view']})")
    for reason in body["unscanned"]:
        console.print(f"unscanned  {reason}")
    console.print(_verdicts(body["verdicts"]))
    if body["plan"] is None:
        console.print(f"[red]refused[/red]    {escape(body['refusal']['message'])}")
        return
    console.print(_cards(body["cards"], thought=body["estimates"] is not None))
    _show_plan(console, body)
    if body["estimates"] is not None:
        _show_estimates(console, body["estimates"])
    console.print(
        f"weight     {body['cost_weight']:g} of quality for 1 USD per 1,000 requests",
        highlight=False,
    )


def _verdicts(verdicts: list[Body]) -> Table:
    table = Table("worker", "decision", "because", title="Who may see it", title_justify="left")
    for verdict in verdicts:
        colour = "green" if verdict["decision"] == "allow" else "red"
        table.add_row(
            verdict["worker"],
            f"[{colour}]{verdict['decision']}[/{colour}]",
            f"{escape(verdict['reason'])}\n[dim]{verdict['rule']} at {verdict['position']}[/dim]",
        )
    return table


def _cards(cards: list[Body], *, thought: bool) -> Table:
    """What the engine saw of every worker, which it knew by number only, and what it thought."""
    table = Table(title="What the engine saw", title_justify="left")
    table.add_column("")
    table.add_column("worker", no_wrap=True)
    for name in ("where", "skill by its card", "USD per Mtok"):
        table.add_column(name)
    if thought:
        table.title = "What the engine saw, and the chances it gives"
        table.add_column("right")
        table.add_column("asked")
    for number, card in enumerate(cards):
        skill = ", ".join(f"{domain} {chance:.2f}" for domain, chance in card["skill"].items())
        chances = [_chance(card["chance_right"]), _chance(card["chance_chosen"])]
        table.add_row(
            str(number),
            card["worker"],
            "local" if card["local"] else "remote",
            skill or "-",
            f"{card['input_usd_per_mtok']:g} in, {card['output_usd_per_mtok']:g} out",
            *(chances if thought else []),
        )
    return table


def _show_plan(console: Console, body: Body) -> None:
    where = {"planner": "the planner process", "serve": "this process"}[body["engine_where"]]
    console.print(f"plan       first round, by the engine {body['engine']} in {where}:")
    for line in body["plan"].splitlines():
        worker, access, subtask = line.split(" ", 2)
        task = "" if subtask == "-" else f": {subtask}"
        console.print(f"             {worker}, shown {_shown(access)}{task}", markup=False)
    if body["look"]:
        console.print(
            "then       the answers are looked at before one is accepted or more are asked"
        )
    else:
        console.print("then       the answer goes to the client as it is written")
    if body["alternates"]:
        console.print(f"fallback   {', '.join(body['alternates'])}")


def _shown(access: str) -> str:
    """An access list in words."""
    if access == "*":
        return "the question and all earlier answers"
    parts = ["the question" if sign == "q" else f"answer {sign}" for sign in access.split(",")]
    return "nothing" if access == "-" else ", ".join(parts)


def _show_estimates(console: Console, estimates: Body) -> None:
    quality, cost = estimates["expected_quality"], estimates["expected_cost_usd"]
    console.print(
        f"quality    {quality:.2f} expected of this round, for {cost:.6f} USD", highlight=False
    )
    console.print(
        f"stop       {estimates['chance_accept']:.2f} to ask nobody: in a first round there is no "
        "answer to keep", highlight=False,
    )  # fmt: skip


def _chance(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
