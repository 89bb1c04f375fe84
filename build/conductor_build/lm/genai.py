"""A checkpoint for the CPU, by the model builder of onnxruntime-genai, and plans written with it.

The package is an extra (`genai`), imported by nothing else. Its builder runs as a program of its
own, which is how its makers offer it. The mask is ours: the engine gives logits, token by token,
and the automaton says which may be chosen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

from conductor.plan.automaton import State
from conductor.plan.closing import closing
from conductor.plan.forcing import spell
from conductor.plan.tokenrows import rows_of
from conductor_build.lm.merge import ExportError
from conductor_build.lm.parity import MAX_TOKENS
from conductor_build.lm.tokens import ids_of

if TYPE_CHECKING:
    from torch import Tensor

    from conductor_build.lm.tokens import Ask, Writer

Precision = Literal["int4", "fp32"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_PACKAGE = "onnxruntime_genai"
_BLOCK = 32
"""Weights of an int4 group: the smallest that the engine's CPU kernels take, and the exactest."""
_LIMIT_S = 3600.0
_ROOM = MAX_TOKENS + 512
"""Tokens of a plan that the engine sets room aside for: the last text may have to be ended."""


def need_genai() -> None:
    """Raises `ExportError` when the package is missing."""
    if find_spec(_PACKAGE) is None:
        raise ExportError(
            "--onnx needs onnxruntime-genai, which is not installed: install "
            "conductor-appliance[genai]"
        )


def build_onnx(checkpoint: Path, out: Path, precision: Precision = "int4") -> None:
    """The plain checkpoint in `checkpoint` as ONNX in `out`. Nothing is fetched.

    Raises `ExportError` when the package is missing or cannot build this model.
    """
    need_genai()
    with TemporaryDirectory(prefix="onnx-") as cache:
        command = [
            *(sys.executable, "-m", f"{_PACKAGE}.models.builder"),
            *("-m", str(checkpoint), "-i", str(checkpoint), "-o", str(out)),
            *("-p", precision, "-e", "cpu", "-c", cache),
        ]
        if precision == "int4":
            command += ["--extra_options", "int4_accuracy_level=4", f"int4_block_size={_BLOCK}"]
        offline = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        try:
            done = subprocess.run(  # noqa: S603  our own arguments
                command, env=offline, capture_output=True, timeout=_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise ExportError(f"the ONNX builder was not through after {_LIMIT_S:g} s") from None
    if done.returncode or not (out / "model.onnx").is_file():
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        raise ExportError(f"the ONNX builder cannot build this model: {''.join(last)[:200]}")


class Onnx:
    """Writes plans with a model that `build_onnx` has built: a `parity.Speaker`."""

    def __init__(self, folder: Path, writer: Writer) -> None:
        need_genai()
        self._engine: Any = import_module(_PACKAGE)
        self._engine.disable_telemetry_events()
        self._model = self._engine.Model(str(folder))
        self._writer = writer

    def plans(self, asks: Sequence[Ask]) -> list[tuple[int, ...]]:
        """The likeliest plan for each."""
        return [tuple(self._write(ask)) for ask in asks]

    def logits(self, ask: Ask, written: tuple[int, ...]) -> Tensor:
        """[T, V] before each token of a plan."""
        import torch

        generator = self._begun(ask)
        found = []
        for token in written:
            found.append(_last(generator))
            generator.append_tokens([token])
        return torch.stack(found)

    def _write(self, ask: Ask) -> Iterator[int]:
        automaton, ends = self._writer.automaton(ask), self._writer.tables.eos
        state, generator = automaton.start(), self._begun(ask)
        count, ended = 0, False
        while not ended:
            tokens = automaton.forced(state)
            if not tokens and count >= MAX_TOKENS:
                tokens = self._ending(state)
            tokens = tokens or [_likeliest(_last(generator), automaton.allowed(state))]
            for token in tokens:
                yield token
                state = automaton.advance(state, token)
            count, ended = count + len(tokens), tokens[-1] in ends
            generator.append_tokens(tokens)

    def _ending(self, state: State) -> list[int]:
        """As the policy ends plans for lack of room."""
        writer = self._writer
        text = closing(state)
        run = spell(text, lambda one: ids_of(writer.tokenizer, one), rows_of(writer.tables))
        return [*run, writer.tables.eos[0]]

    def _begun(self, ask: Ask) -> Any:
        ids = [*self._writer.prefix, *ask.rest]
        params = self._engine.GeneratorParams(self._model)
        params.set_search_options(max_length=len(ids) + _ROOM, do_sample=False)
        generator = self._engine.Generator(self._model, params)
        generator.append_tokens(ids)
        return generator


def _last(generator: Any) -> Tensor:
    """[V] of the token that comes next."""
    import torch

    found: Tensor = torch.from_numpy(generator.get_logits().copy()).float().flatten(0, -2)[-1]
    return found


def _likeliest(logits: Tensor, allowed: bytes) -> int:
    import torch

    bits = torch.frombuffer(bytearray(allowed), dtype=torch.uint8)
    may = (bits[:, None] >> torch.arange(8) & 1).flatten()[: len(logits)].bool()
    return int(logits.masked_fill(~may, -torch.inf).argmax())
