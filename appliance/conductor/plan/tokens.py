"""The bytes that each token of a tokenizer stands for.

Read from a Hugging Face `tokenizer.json` (`of_tokenizer`), or piece by piece from elsewhere, as
the vocabulary inside a GGUF file. Two spellings are known: byte-level BPE (GPT-2, Llama 3, Qwen,
SmolLM) writes one printable character for each byte; SentencePiece (Llama 2, Gemma, Mistral) writes
`▁` for a space and `<0x0A>` for a byte that is no character of its own.

Special tokens stand for nothing: they have no bytes and are never allowed inside a plan.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from conductor.errors import PlanError

MAX_TOKENS = 1 << 20
"""Largest vocabulary that is read; four times the largest in use."""
_FALLBACK = re.compile(r"<0x([0-9A-F]{2})>")
_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))


def _byte_characters() -> dict[str, int]:
    """Printable Latin-1 stands for itself; the others in order for U+0100 and on (GPT-2's map)."""
    others = [byte for byte in range(256) if byte not in _PRINTABLE]
    shifted = {chr(0x100 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in _PRINTABLE} | shifted


_BYTES = _byte_characters()


def byte_level(piece: str) -> bytes | None:
    """The bytes of a byte-level BPE piece; None when it is not spelled so."""
    try:
        return bytes(_BYTES[character] for character in piece)
    except KeyError:
        return None


def sentencepiece(piece: str) -> bytes:
    """The bytes of a SentencePiece piece, byte fallback included."""
    fallback = _FALLBACK.fullmatch(piece)
    return bytes.fromhex(fallback[1]) if fallback else piece.replace("\u2581", " ").encode()


def of_tokenizer(data: bytes, size: int = 0) -> tuple[bytes | None, ...]:
    """The bytes of every token id of a `tokenizer.json`, None for special and unused ids. `size`
    is the model's number of logits, where its head is padded beyond the vocabulary.

    Raises `PlanError` for a file that is none, or a model whose pieces are no bytes (WordPiece).
    """
    try:
        document = json.loads(data)
        pieces, added = _pieces(document["model"]), document.get("added_tokens") or []
        spelled = byte_level if _is_byte_level(document) else sentencepiece
        special = {one["id"] for one in added if one["special"]}
        plain = {one["id"]: str(one["content"]).encode() for one in added}
        found = {i: spelled(piece) for i, piece in pieces.items()} | plain
    except (ValueError, KeyError, TypeError, AttributeError):
        raise PlanError("this is no tokenizer.json of a BPE or Unigram model") from None
    return listed({i: text for i, text in found.items() if i not in special}, size)


def listed(found: Mapping[int, bytes | None], size: int = 0) -> tuple[bytes | None, ...]:
    """Tokens by id in a row, of at least `size`. Raises `PlanError` for ids out of all bounds."""
    count = max([size, *(i + 1 for i in found)])
    if count > MAX_TOKENS or any(i < 0 for i in found):
        raise PlanError(f"token ids are numbered from 0, and at most {MAX_TOKENS}")
    return tuple(found.get(i) for i in range(count))


def _pieces(model: Mapping[str, Any]) -> dict[int, str]:
    kind = model.get("type") or ("Unigram" if isinstance(model["vocab"], list) else "BPE")
    if kind == "Unigram":
        return {i: str(piece) for i, (piece, _) in enumerate(model["vocab"])}
    if kind != "BPE":
        raise ValueError("its pieces do not say where spaces stood")
    return {int(i): str(piece) for piece, i in model["vocab"].items()}


def _is_byte_level(document: Mapping[str, Any]) -> bool:
    parts = [document.get("decoder"), document.get("pre_tokenizer")]
    return any(kind == "ByteLevel" for kind in _kinds(parts))


def _kinds(parts: Iterable[Any]) -> Iterable[str]:
    for part in parts:
        if isinstance(part, dict):
            yield str(part.get("type"))
            yield from _kinds([*part.get("decoders", ()), *part.get("pretokenizers", ())])
