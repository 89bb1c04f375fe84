"""Untrained conductors in bundles and tables of outcomes in folders, to judge one on the other."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from conductor.planner.encoder import WIDTH
from conductor.planner.encoderfiles import default_encoder
from conductor.planner.facts import Domain
from conductor.planner.features import FEATURES
from conductor.planner.lexical import lexical
from conductor.planner.manifest import EncoderId
from conductor.process.keyfiles import public_pem
from conductor.workers.catalogue import load_catalogue
from conductor_build import record
from conductor_build.baselines.plays import Prompts
from conductor_build.bundle import Facts, write_bundle
from conductor_build.outcomes import Table
from conductor_build.pocket.export import export
from conductor_build.seen import PATH as SEEN
from conductor_build.seen import Seen
from support import pocket
from support.bundles import PROVENANCE
from support.outcomes import generated

KEY = Ed25519PrivateKey.generate()
TASKS = ("even", "odd")
READ = 8
"""Numbers of a sentence vector that baselines learn on here: 384 would take them seconds."""
RECIPE: Mapping[str, Any] = {
    "evaluation": {
        "lambdas": [0.01, 0.1],
        "pools": [{"name": "all", "workers": ["a", "b", "c"]}],
    }
}


@dataclass
class FakeReader:
    """An encoder without a model: a text's vector is drawn from its hash."""

    id: EncoderId = field(default_factory=lambda: default_encoder(load_catalogue()))
    read: list[str] = field(default_factory=list)

    def embed(self, text: str) -> NDArray[np.float32]:
        self.read.append(text)
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector = np.random.default_rng(seed).normal(size=WIDTH)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


def vectors_of(questions: Sequence[str]) -> NDArray[np.float32]:
    """Prompt features of questions by `FakeReader`, [P, F]."""
    embed = FakeReader().embed
    rows = [np.concatenate([embed(question), lexical(question)]) for question in questions]
    return np.stack(rows).astype(np.float32)


def outcomes(prompts: int = 60, *, seed: int = 0, mark: str = "", workers: int = 4) -> Table:
    """A generated table whose ids and questions begin with `mark`."""
    made, _ = generated(prompts, workers, seed, TASKS)
    return replace(
        made,
        prompts=tuple(f"{mark}{one}" for one in made.prompts),
        questions=tuple(f"{mark} {one}" for one in made.questions),
    )


def bundle(folder: Path, training: Table, **changes: Any) -> Path:
    """An untrained conductor that says it learned from `training`; its key is beside it, as .pub.

    `changes` are to the facts of the manifest; `files` to the files.
    """
    facts = replace(
        pocket.FACTS, domains=tuple(Domain(task, "general", 900.0, 0.6) for task in TASKS)
    )
    reader = FakeReader()
    embeddings = np.stack([reader.embed(question) for question in training.questions])
    files = {
        **export(pocket.perturbed(1, facts, 0.1), facts),
        record.PATH: record.encode(Prompts(training, embeddings[:, :READ])),
        SEEN: Seen.of(training.questions).to_bytes(),
        **changes.pop("files", {}),
    }
    made = Facts(
        features=FEATURES, encoder=reader.id, provenance=replace(PROVENANCE, recipe=RECIPE)
    )
    write_bundle(folder, files, replace(made, **changes), KEY)
    folder.with_suffix(".pub").write_bytes(public_pem(KEY.public_key()))
    return folder


def folder(path: Path, table: Table) -> Path:
    """A table as a folder in the layout of `outcomes.load`."""
    path.mkdir(parents=True)
    rows = [["prompt_id", "model", "score", "answer", "output_tokens"]]
    for i, prompt in enumerate(table.prompts):
        for j, name in enumerate(table.names):
            if math.isfinite(table.score[i, j]):
                answer = "" if table.answer[i, j] < 0 else f"answer {table.answer[i, j]}"
                tokens = table.tokens[i, j]
                rows.append([prompt, name, f"{table.score[i, j]:g}", answer,
                             f"{tokens:g}" if math.isfinite(tokens) else ""])  # fmt: skip
    facts = [["model", "kind", "params_b", "usd_in_per_mtok", "usd_out_per_mtok"]]
    for one in table.workers:
        facts.append([one.name, "local" if one.local else "remote", f"{one.params_b:g}",
                      f"{one.usd_in_per_mtok:g}", f"{one.usd_out_per_mtok:g}"])  # fmt: skip
    lines = [
        json.dumps({"id": prompt, "task": task, "question": question})
        for prompt, task, question in zip(table.prompts, table.tasks, table.questions, strict=True)
    ]
    (path / "prompts.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    (path / "outcomes.csv.gz").write_bytes(gzip.compress(_csv(rows).encode()))
    (path / "workers.csv").write_text(_csv(facts))
    return path


def _csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
