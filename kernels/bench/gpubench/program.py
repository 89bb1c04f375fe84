"""The parts, in the order in which they run, each with its share of ten minutes."""

from __future__ import annotations

from collections.abc import Sequence

from gpubench import ceilings, checked, ops, others, plans, steps
from gpubench.parts import Part

PARTS = (
    Part("ceilings", "What the card does at best", 15.0, ceilings.rows),
    Part("checks", "Every op against float64", 130.0, checked.rows),
    Part("ops", "Ops beside their floors", 110.0, ops.rows),
    Part("step", "The decode step of a 7B model", 120.0, steps.rows),
    Part("plan", "A whole plan", 60.0, plans.rows),
    Part("others", "Beside others", 300.0, others.rows),
)
"""Ceilings first: the rest is told as a share of them. The last has what time the others leave."""


def chosen(names: Sequence[str] | None) -> tuple[Part, ...]:
    """Those of these names, and what they stand on. Exits for a name that there is not."""
    if not names:
        return PARTS
    unknown = set(names) - {part.name for part in PARTS}
    if unknown:
        known = ", ".join(part.name for part in PARTS)
        raise SystemExit(f"there is no part {', '.join(sorted(unknown))}; there are: {known}")
    wanted = {*names, "ceilings"}
    return tuple(part for part in PARTS if part.name in wanted)
