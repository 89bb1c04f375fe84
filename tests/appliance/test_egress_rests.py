"""An egress process with nothing to do ends for good: systemd must not start it again and again."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from conductor.cli.egress import NOTHING_TO_DO, egress

REPOSITORY = Path(__file__).parents[2]


def test_on_a_machine_from_which_nothing_may_leave_it_rests() -> None:
    config = str(REPOSITORY / "configs/examples/air-gapped")
    done = CliRunner().invoke(egress, ["--config", config])
    assert done.exit_code == NOTHING_TO_DO
    assert "nothing may leave" in done.output


def test_its_unit_knows_that_status() -> None:
    unit = (REPOSITORY / "systemd/units/conductor-egress.service").read_text()
    for directive in ("RestartPreventExitStatus", "SuccessExitStatus"):
        assert re.search(rf"^{directive}={NOTHING_TO_DO}$", unit, re.MULTILINE)
