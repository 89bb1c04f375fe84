"""Audit logs with records at given times, chained as the appliance chains them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from conductor.audit.record import ChainEnd, Moment, hash_line, seal
from conductor.audit.segments import segment_path

BOOT = "6a1f0c52-0000-4000-8000-000000000000"


class RecordedLog:
    """A log in `directory`, written record by record."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.end = ChainEnd()
        self._segment = 1
        self._mono_ns = 0

    def add(self, at: str, event: str, **fields: Any) -> None:
        """Append a record of the time `at` (ISO 8601, UTC if it names no zone)."""
        zoned = at if at.endswith("Z") else f"{at}+00:00"
        wall_ns = round(datetime.fromisoformat(zoned).timestamp() * 1000) * 1_000_000
        self._mono_ns += 1_000_000
        line = seal(self.end, event, fields, Moment(wall_ns, self._mono_ns), BOOT)
        with segment_path(self.directory, self._segment).open("ab") as file:
            file.write(line + b"\n")
        self.end = ChainEnd(self.end.seq + 1, hash_line(line))

    def next_segment(self) -> None:
        """What is added from now on stands in another file."""
        self._segment += 1

    def request(
        self,
        at: str,
        name: str,
        *,
        label: str = "internal",
        sent: dict[str, str] | None = None,
        kept: dict[str, str] | None = None,
        denied: dict[str, str] | None = None,
        key: str = "svc-app",
        ended: bool = True,
        **egress: Any,
    ) -> None:
        """A request: `sent` and `kept` are label by worker of what left and what stayed inside,
        `denied` is rule by worker. A remote worker `w` stands at the destination `w-place`."""
        ids = {"request_id": f"req-{name}", "decision_id": f"dec-{name}"}
        sent, kept, denied = sent or {}, kept or {}, denied or {}
        allowed = {worker: [True, f"allow-{worker}"] for worker in (*sent, *kept)}
        verdicts = allowed | {worker: [False, rule] for worker, rule in denied.items()}
        self.add(at, "decision", **ids, key=key, model="auto", label=label, verdicts=verdicts,
                 policy_revision=3, plan=[{"worker": w, "access": "q"} for w in allowed] or None,
                 detectors=[], unscanned=[])  # fmt: skip
        for step, (worker, shown) in enumerate(sent.items()):
            self.add(at, "egress", **ids, step=step, worker=worker, destination=f"{worker}-place",
                     label=shown, bytes_out=100, policy_revision=3, permit_id=f"p-{name}",
                     **egress)  # fmt: skip
        if ended:
            steps = [
                {"step": step, "label": shown, "attempts": [{"worker": worker, "outcome": "ok"}]}
                for step, (worker, shown) in enumerate({**sent, **kept}.items())
            ]
            outcome = "completed" if allowed else "denied"
            self.add(at, "outcome", **ids, key=key, outcome=outcome, steps=steps, duration_ms=5)
