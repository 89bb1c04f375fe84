"""What was compiled, as JSON and for people: `report/kernels.{json,md}` of the bundle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conductor_build.compile.compiler import Compiled

JSON = "report/kernels.json"
MARKDOWN = "report/kernels.md"
_COLUMNS = {
    "registers": "registers",
    "shared_bytes": "shared memory, bytes",
    "stack_bytes": "stack, bytes",
    "local_bytes": "local memory, bytes",
    "weight_loads": "loads of weights",
    "narrow_loads": "of fewer bits",
    "spills": "spills",
    "loads": "loads",
    "wide_loads": "of 128 bits",
    "conversions": "I2F",
    "tensor": "tensor core",
    "instructions": "instructions",
}


@dataclass(frozen=True)
class Report:
    """`of`: id of the bundle that the kernels are for. `faults`: (architecture, kernel) -> what
    the gates say of it. `allowed`: they were asked for, by --allow-faults."""

    of: str
    triton: str
    source: str
    compiled: Sequence[Compiled]
    faults: Mapping[tuple[str, str], Sequence[str]]
    allowed: bool = False

    def files(self) -> dict[str, bytes]:
        """Both, by path in the bundle."""
        return {
            JSON: json.dumps(self._record(), indent=1, sort_keys=True).encode() + b"\n",
            MARKDOWN: "\n".join([*self._lines(), ""]).encode(),
        }

    def _record(self) -> dict[str, Any]:
        architectures: dict[str, dict[str, Any]] = {}
        for one in self.compiled:
            found = self.faults.get((one.architecture, one.name), ())
            said = {**asdict(one.figures), "code_bytes": len(one.cubin), "faults": list(found)}
            architectures.setdefault(one.architecture, {})[one.name] = said
        said = {"of": self.of, "triton": self.triton, "source": self.source}
        return {**said, "allow_faults": self.allowed, "architectures": architectures}

    def _lines(self) -> Iterator[str]:
        yield "# Kernels as compiled"
        yield ""
        yield f"Of bundle {self.of}, by Triton {self.triton}, from sources {self.source[:12]}."
        yield "Read from the machine code; nothing here was run."
        for architecture in dict.fromkeys(one.architecture for one in self.compiled):
            yield from ("", f"## {architecture}", "")
            yield f"| kernel | {' | '.join(_COLUMNS.values())} |"
            yield f"|---|{'---:|' * len(_COLUMNS)}"
            rows = [one for one in self.compiled if one.architecture == architecture]
            yield from (_row(one) for one in rows)
        yield from ("", "## Faults", "")
        if self.allowed:
            yield from (
                "Compiled with --allow-faults: what is named here was written all the same.",
                "",
            )
        if not any(self.faults.values()):
            yield "None."
        for (architecture, name), found in self.faults.items():
            yield from (f"- {name}, {architecture}: {fault}" for fault in found)


def _row(one: Compiled) -> str:
    figures = asdict(one.figures)
    figures |= figures.pop("counts") or {}
    return f"| {one.name} | {' | '.join(str(figures.get(name, '-')) for name in _COLUMNS)} |"
