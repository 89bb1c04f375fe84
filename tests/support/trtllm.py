"""TensorRT-LLM's stand-in, put where the real one would be, and model folders for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from conductor_kernels.tensorrt_llm import runner
from support.automata import EOS
from support.decoders import SMALL

STUBS = Path(__file__).parents[1] / "kernels" / "stubs" / "tensorrt_llm"
LAYOUTS = ("v1_2", "v1_4")
_OURS = ("tensorrt_llm", "trtllm_stub")


def _forget() -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] in _OURS]:
        del sys.modules[name]


@contextmanager
def installed(layout: str | None) -> Iterator[pytest.MonkeyPatch]:
    """As if that version were there; None: none is. What is loaded after is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        _forget()
        for name in runner._ENVIRONMENT:
            patch.setenv(name, "")
        if layout is not None:
            for folder in ("shared", layout):
                patch.syspath_prepend(str(STUBS / folder))
        try:
            yield patch
        finally:
            _forget()


def lot(folder: Path, **changed: Any) -> Path:
    """A model folder without weights: the stand-in draws its logits."""
    said = {**SMALL, "architectures": ["Qwen2ForCausalLM"], "eos_token_id": EOS, "rope_theta": 1e4}
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(said | changed))
    return folder
