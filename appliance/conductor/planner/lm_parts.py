"""What a language-model bundle holds beside its weights, read and checked against this release.

    lm/                config.json, *.safetensors, tokenizer.json: a Hugging Face checkpoint
    plan/tables.bin    the plan automaton's tables for that tokenizer (`plan/tablefile.py`)
    plan/prompt.json   {"frame", "examples", "digest", "prompt_version", "language_version",
                        "rounds"}: the prompt that it was trained on

A conductor that is shown another prompt than in training, or whose ids mean other bytes, writes
plans all the same, since the mask makes it, only bad ones. So every one of these is a refusal.

Left out: who signed the bundle, and hashing its files (`bundle.py`); the weights (the runner).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from conductor.errors import BundleError, PlanError
from conductor.plan import tablefile
from conductor.plan.automaton import Tables
from conductor.plan.language import LANGUAGE_VERSION
from conductor.plan.prompt import CHATML, PLAIN, PROMPT_VERSION, Prompter
from conductor.plan.tokens import of_tokenizer
from conductor.planner.manifest import Refusal

FOLDER = "lm"
TOKENIZER = "lm/tokenizer.json"
TABLES = "plan/tables.bin"
PROMPT = "plan/prompt.json"
_FRAMES = {frame.name: frame for frame in (PLAIN, CHATML)}
_FIELDS: dict[str, type] = {
    "frame": str,
    "examples": int,
    "digest": str,
    "prompt_version": int,
    "language_version": int,
    "rounds": int,
}
_AGAIN = "train it again, or use the release it was built with"


@dataclass(frozen=True)
class Parts:
    """All that turns requests into ids and ids into plans."""

    tables: Tables
    tokenizer: Tokenizer
    prompter: Prompter
    prefix: tuple[int, ...]
    """Ids of the prompt's fixed part."""
    rounds: int
    """How many rounds a request had in training; with 1 it never learned to look at answers."""

    def encode(self, text: str) -> list[int]:
        """Ids of a text, a chat format's control tokens among them, with nothing added."""
        return ids_of(self.tokenizer, text)


def read_parts(read: Callable[[str], bytes]) -> Parts:
    """From a bundle's files, whose bytes `read` gives by path.

    Raises `BundleError` when they do not fit each other or this release.
    """
    said = _prompt_fields(read(PROMPT))
    data = read(TOKENIZER)
    tables = _tables(read(TABLES), data)
    tokenizer = _tokenizer(data)
    prompter = _prompter(said, tokenizer)
    prefix = tuple(ids_of(tokenizer, prompter.prefix))
    return Parts(tables, tokenizer, prompter, prefix, said["rounds"])


def ids_of(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text, with no token added in front or behind."""
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _prompt_fields(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except ValueError:
        said = None
    # `type() is` and not isinstance: true is an int to Python.
    whole = isinstance(said, dict) and said.keys() == _FIELDS.keys()
    if not whole or any(type(said[name]) is not kind for name, kind in _FIELDS.items()):
        names = ", ".join(_FIELDS)
        raise BundleError(Refusal.MANIFEST, f"{PROMPT} must have exactly the fields {names}")
    assert isinstance(said, dict)
    if said["language_version"] != LANGUAGE_VERSION:
        raise BundleError(
            Refusal.LANGUAGE,
            f"it writes plan language {said['language_version']}, this release reads "
            f"{LANGUAGE_VERSION}: {_AGAIN}",
        )
    if said["prompt_version"] != PROMPT_VERSION:
        raise _other_prompt(f"version {said['prompt_version']}", f"version {PROMPT_VERSION}")
    return said


def _prompter(said: dict[str, Any], tokenizer: Tokenizer) -> Prompter:
    frame = _FRAMES.get(said["frame"])
    if frame is None:
        known = ", ".join(_FRAMES)
        raise BundleError(Refusal.MANIFEST, f"the prompt's frame must be one of {known}")
    try:
        prompter = Prompter.of(
            frame, lambda text: len(ids_of(tokenizer, text)), examples=said["examples"]
        )
    except PlanError as error:
        raise BundleError(Refusal.FEATURES, f"its tokenizer cannot be used: {error}") from None
    if prompter.digest != said["digest"]:
        raise _other_prompt(said["digest"][:12], prompter.digest[:12])
    return prompter


def _other_prompt(trained: str, ours: str) -> BundleError:
    return BundleError(
        Refusal.FEATURES,
        f"it was trained on another prompt ({trained}) than this release writes ({ours}): {_AGAIN}",
    )


def _tables(packed: bytes, tokenizer: bytes) -> Tables:
    """The tables, if they are of this tokenizer: of the same bytes for every id."""
    try:
        tables = tablefile.unpack(packed)
    except PlanError as error:
        raise BundleError(Refusal.LANGUAGE, f"{error}, or {_AGAIN}") from None
    try:
        spelled = of_tokenizer(tokenizer, tables.tokens)
    except PlanError as error:
        raise BundleError(Refusal.ENCODER, f"{TOKENIZER} cannot be used: {error}") from None
    ends = frozenset(tables.eos)
    texts = [b"" if i in ends else text or b"" for i, text in enumerate(spelled)]
    if list(map(len, texts)) != tables.length.tolist() or b"".join(texts) != tables.spelling:
        raise BundleError(
            Refusal.ENCODER,
            f"{TABLES} was made for another tokenizer than {TOKENIZER}: export the bundle again",
        )
    return tables


def _tokenizer(data: bytes) -> Tokenizer:
    try:
        return Tokenizer.from_str(data.decode())
    except Exception as error:  # noqa: BLE001  the library raises bare `Exception`
        kind = type(error).__name__
        raise BundleError(Refusal.ENCODER, f"{TOKENIZER} cannot be read ({kind})") from None
