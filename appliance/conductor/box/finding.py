"""What `conductor doctor` finds: one thing that is wrong, how bad it is, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]
"""`error`: requests fail, or something that the appliance promises does not hold. `warning`: it
will fail, or somebody should know. `info`: good to know."""


@dataclass(frozen=True)
class Finding:
    """One thing. `id` is stable, for scripts."""

    id: str
    severity: Severity
    what: str
    do: str


def exit_code(findings: Sequence[Finding]) -> int:
    """0: nothing, or only what is good to know; 1: warnings; 2: errors."""
    severities = {finding.severity for finding in findings}
    return 2 if "error" in severities else int("warning" in severities)
