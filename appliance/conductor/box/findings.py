"""All that is wrong: the entrance to `findingsofmachine.py` and `findingsofparts.py`."""

from __future__ import annotations

from conductor.box.facts import Facts
from conductor.box.finding import Finding, Severity
from conductor.box.findingsofmachine import OF_THE_MACHINE
from conductor.box.findingsofparts import OF_THE_PARTS

_ORDER: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}


def found(facts: Facts) -> list[Finding]:
    """Every finding, errors first. Pure."""
    every = [one for subject in (*OF_THE_MACHINE, *OF_THE_PARTS) for one in subject(facts)]
    return sorted(every, key=lambda finding: _ORDER[finding.severity])
