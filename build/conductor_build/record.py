"""What a conductor was trained on, inside its bundle: outcomes and embeddings, without any text.

Whoever judges the conductor chooses baselines on them and measures the workers' cards from them. A
row is one training prompt: its task, the sentence embedding, and what every worker scored, answered
and used. Ids and questions stay outside; `seen.py` tells which prompts they were.
"""

from __future__ import annotations

import io
import zipfile
import zlib

import numpy as np
from numpy.typing import NDArray

from conductor.errors import BundleError
from conductor.planner.manifest import Refusal
from conductor_build.baselines.plays import EvaluationError, Prompts
from conductor_build.outcomes import OutcomesError, Table, Worker

PATH = "report/training.npz"

_FACTS = ("params_b", "usd_in_per_mtok", "usd_out_per_mtok")
_ROWS = ("score", "answer", "tokens")


def encode(prompts: Prompts) -> bytes:
    """A table and its sentence embeddings [P, E] as a compressed npz, embeddings in half precision.
    The same for the same outcomes."""
    table = prompts.table
    tasks, task = np.unique(np.array(table.tasks, dtype=np.str_), return_inverse=True)
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        tasks=tasks,
        task=task.astype(np.int32),
        workers=np.array(table.names, dtype=np.str_),
        local=np.array([worker.local for worker in table.workers]),
        **{fact: np.array([getattr(worker, fact) for worker in table.workers]) for fact in _FACTS},
        **{name: getattr(table, name) for name in _ROWS},
        comparable=np.array(table.comparable),
        embeddings=prompts.embeddings.astype(np.float16),
    )
    return buffer.getvalue()


def decode(data: bytes) -> Prompts:
    """The table again, its prompts under numbers instead of ids and questions.

    Raises `BundleError` (`tampered`) when the bytes are no such record.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as parts:
            return _prompts({name: parts[name] for name in parts.files})
    except (KeyError, ValueError, IndexError, OSError, EOFError, zipfile.BadZipFile, zlib.error,
            OutcomesError, EvaluationError):  # fmt: skip
        raise BundleError(
            Refusal.TAMPERED, f"{PATH} is no record of outcomes: train the conductor again"
        ) from None


def _prompts(parts: dict[str, NDArray[np.generic]]) -> Prompts:
    names = [str(name) for name in parts["workers"]]
    facts = zip(*(parts[fact].astype(float).tolist() for fact in _FACTS), strict=True)
    workers = (
        Worker(name, bool(local), *own)
        for name, local, own in zip(names, parts["local"], facts, strict=True)
    )
    count = len(parts["task"])
    table = Table(
        prompts=tuple(f"training {number:07}" for number in range(count)),
        tasks=tuple(str(task) for task in parts["tasks"][parts["task"].astype(np.int64)]),
        questions=("",) * count,
        workers=tuple(workers),
        score=parts["score"].astype(np.float32),
        answer=parts["answer"].astype(np.int32),
        tokens=parts["tokens"].astype(np.float32),
        comparable=bool(parts["comparable"]),
    )
    return Prompts(table, parts["embeddings"].astype(np.float64))
