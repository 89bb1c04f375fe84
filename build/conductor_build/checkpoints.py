"""Where a training stands, on disk: enough to go on as if nothing had happened.

    run.json        which training this folder holds; another recipe or other data is refused
    fitted.pt       what was fitted before the first iteration, and the prompts ready to be played
    checkpoint.pt   weights, optimisers, random generators, after so many iterations

Every file is replaced whole or not at all, and names the training it belongs to.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from conductor_build.files import OutputError, replace_file
from conductor_build.pocket.deck import Deck
from conductor_build.pocket.network import Pocket

RUN, FITTED, CHECKPOINT = "run.json", "fitted.pt", "checkpoint.pt"
_LOCK = ".lock"


@dataclass
class Learner:
    """Everything that an iteration changes."""

    pocket: Pocket
    pointer: torch.optim.Optimizer
    critic: torch.optim.Optimizer
    rng: np.random.Generator
    generator: torch.Generator
    done: int = 0
    """Iterations so far."""


@contextmanager
def claim(out: Path, identity: Mapping[str, Any], *, resume: bool) -> Iterator[None]:
    """Hold the folder of a training for as long as the context lasts.

    Raises `OutputError` when something is there already and it is not to be resumed, when it is
    another training than `identity` says, or when another process holds it.
    """
    with ExitStack() as held:
        try:
            out.mkdir(parents=True, exist_ok=True)
            present = any(not one.name.startswith(".") for one in out.iterdir())
            lock = held.enter_context((out / _LOCK).open("w"))
        except OSError as error:
            raise OutputError(f"{out} cannot be used ({os.strerror(error.errno or 0)})") from None
        _hold(lock.fileno(), out)
        _admit(out, identity, present=present, resume=resume)
        yield


def _hold(descriptor: int, out: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise OutputError(f"another training is at work in {out}: wait, or end that one") from None


def _admit(out: Path, identity: Mapping[str, Any], *, present: bool, resume: bool) -> None:
    record = out / RUN
    if present and not resume:
        raise OutputError(
            f"{out} is not empty: give a new folder, or --resume to go on with the training in it"
        )
    if not record.exists():
        if present:
            raise OutputError(f"{out} holds no training to resume: give a new folder")
        replace_file(record, (json.dumps(identity, indent=2, sort_keys=True) + "\n").encode())
        return
    try:
        there = json.loads(record.read_bytes())
    except ValueError:
        raise OutputError(f"{record} is damaged: give a new folder") from None
    wanted = json.loads(json.dumps(identity))
    other = sorted(key for key in there.keys() | wanted if there.get(key) != wanted.get(key))
    if other:
        raise OutputError(
            f"{out} holds a training with another {', '.join(other)}: go on with the same, or "
            "give a new folder"
        )


def save_fitted(out: Path, pocket: Pocket, deck: Deck) -> None:
    """Keep what everything after starts from."""
    parts = {one.name: getattr(deck, one.name) for one in fields(deck)}
    replace_file(out / FITTED, _bytes({"pocket": pocket.state_dict(), "deck": parts}))


def load_fitted(out: Path, pocket: Pocket) -> Deck | None:
    """Put it back into `pocket`; None when it was never kept."""
    record = _load(out / FITTED)
    if record is None:
        return None
    pocket.load_state_dict(record["pocket"])
    return Deck(**record["deck"])


def save(out: Path, learner: Learner) -> None:
    """Write the checkpoint."""
    record = {
        "done": learner.done,
        "pocket": learner.pocket.state_dict(),
        "pointer": learner.pointer.state_dict(),
        "critic": learner.critic.state_dict(),
        "rng": json.dumps(learner.rng.bit_generator.state),
        "generator": learner.generator.get_state(),
    }
    replace_file(out / CHECKPOINT, _bytes(record))


def restore(out: Path, learner: Learner) -> None:
    """Go back to the checkpoint, if there is one."""
    record = _load(out / CHECKPOINT)
    if record is None:
        return
    learner.pocket.load_state_dict(record["pocket"])
    learner.pointer.load_state_dict(record["pointer"])
    learner.critic.load_state_dict(record["critic"])
    learner.rng.bit_generator.state = json.loads(record["rng"])
    learner.generator.set_state(record["generator"])
    learner.done = record["done"]


def _bytes(record: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(record), buffer)
    return buffer.getvalue()


def _load(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = torch.load(path, weights_only=True)
    except Exception:  # noqa: BLE001  the library raises whatever its readers do
        raise OutputError(f"{path} is damaged: give a new folder, and train again") from None
    return record
