"""The kinds of bundles: which files each has, and how large they may be. Pure.

    pocket    a network over worker cards; all of it fits in the planner process
    lm        a language model: a Hugging Face checkpoint and what makes its text plans

Files of weights are checked piece by piece and never held in memory whole; all others are.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

MAX_TOTAL_BYTES = 64 * 1024 * 1024
"""Of the files of a bundle that are held in memory while it is opened; the planner process has
300 MB for everything."""
_MAX_WEIGHTS_BYTES = 2 * 1024**4
_INSIDE = r"(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,63}){1,3}"


@dataclass(frozen=True)
class Kind:
    """One kind."""

    name: str
    folders: tuple[str, ...]
    required: tuple[str, ...]
    weights: re.Pattern[str] | None = None
    """Paths of files that may be large; of these there must be one."""

    def is_path(self, path: str) -> bool:
        """Whether a file of such a bundle may stand there: plain ASCII, in one of the folders."""
        return bool(re.fullmatch(rf"(?:{'|'.join(self.folders)}){_INSIDE}", path))

    def is_weights(self, path: str) -> bool:
        """Whether that file is one of weights."""
        return bool(self.weights and self.weights.fullmatch(path))

    def lacks(self, paths: Collection[str]) -> str:
        """In words, what is missing among a bundle's files; empty: nothing."""
        missing = next((path for path in self.required if path not in paths), "")
        if not missing and self.weights and not any(map(self.is_weights, paths)):
            return "lm/*.safetensors"
        return missing

    def too_large(self, sizes: dict[str, int]) -> bool:
        """Whether these files, by size in bytes, are more than such a bundle has."""
        held = sum(size for path, size in sizes.items() if not self.is_weights(path))
        return held > MAX_TOTAL_BYTES or sum(sizes.values()) - held > _MAX_WEIGHTS_BYTES


POCKET = Kind(
    "pocket",
    folders=("pocket", "plan", "report"),
    # Without the second nobody can tell which prompts may be used to judge it.
    required=("pocket/decoder.onnx", "pocket/seen.bin"),
)
LM = Kind(
    "lm",
    folders=("lm", "onnx", "plan", "report", "triton"),
    required=("lm/config.json", "lm/tokenizer.json", "plan/tables.bin", "plan/prompt.json"),
    weights=re.compile(r"lm/[^/]+\.safetensors|onnx/[^/]+\.onnx(?:\.data)?"),
)
KINDS = {kind.name: kind for kind in (POCKET, LM)}
