"""The program in the jail that scores answers to reasoning-gym's questions. Never imported.

One request a line, one reply a line, as JSON:

    {"path": [...], "name": ..., "settings": {...}, "index": 5, "answers": [...]}  ->  {"best": 0.5}

A verifier may hand what a model wrote to an evaluator of formulas: that is why it runs here.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import sys
from typing import Any


@functools.lru_cache(maxsize=32)
def _dataset(name: str, settings: str) -> Any:
    return importlib.import_module("reasoning_gym").create_dataset(name, **json.loads(settings))


def _best(asked: dict[str, Any]) -> float:
    for folder in asked["path"]:
        if folder not in sys.path:
            sys.path.append(folder)
    dataset = _dataset(asked["name"], json.dumps(asked["settings"], sort_keys=True))
    item = dataset[asked["index"]]
    return max(float(dataset.score_answer(answer, item)) for answer in asked["answers"])


def main() -> None:
    """Until the input ends. What a verifier prints goes nowhere."""
    with os.fdopen(os.dup(1), "w") as replies:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        for line in sys.stdin:
            replies.write(json.dumps({"best": _best(json.loads(line))}) + "\n")
            replies.flush()


if __name__ == "__main__":
    main()
