"""The model that training starts from: loaded from the catalogue, from a folder, or made up.

    smollm2-135m    a GGUF of the model catalogue: its weights, dequantised once, are kept as a
                    folder beside it, named by the file's hash, which loads in a second or two
    some/folder     a Hugging Face model folder with safetensors
    tiny            a random Llama of two layers with the tokenizer of `smollm2-135m`, for tests

Nothing is fetched, and no code of a folder is run. What a GGUF is converted to appears under its
name only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conductor.errors import ConductorError, StartError
from conductor.plan.prompt import CHATML, PLAIN, Frame
from conductor.workers.catalogue import find_model, load_catalogue
from conductor.workers.fetch import locate
from conductor_build.lm.convert import converted, tokenizer_of

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

TINY = "tiny"
_TINY_TOKENIZER = "smollm2-135m"
_TURN_BEGINS, _TURN_ENDS = "<|im_start|>", "<|im_end|>"
_BLOCK = 1 << 20


class BaseError(ConductorError):
    """A base model cannot be used: the message says why, and what to take instead."""


@dataclass(frozen=True)
class Base:
    """A causal language model and what belongs to it."""

    model: torch.nn.Module
    """Of transformers, in evaluation mode, no weight of it trainable."""
    tokenizer: Tokenizer
    frame: Frame
    eos: tuple[int, ...]
    """Tokens that end a plan; the first is the one to write."""
    name: str
    """How it was named."""
    digest: str
    """SHA-256 over its weights: of a GGUF the file's own, of a folder over all safetensors."""


def load_base(source: str, *, models: Path, dtype: torch.dtype, seed: int = 0) -> Base:
    """The model named `source`, with weights in `dtype`. `models` holds the catalogue's files;
    `seed` makes the weights of `tiny`.

    Raises `BaseError` or `StartError`; the message says what to do.
    """
    if source == TINY:
        return _tiny(models, dtype, seed)
    if Path(source).is_dir():
        folder = Path(source)
        return _of_folder(folder, source, digest_of(folder), dtype)
    model = find_model(load_catalogue(), source)
    if not model.answers:
        raise BaseError(f"{source} is no language model: name one whose file is a GGUF")
    path = locate(models, model, verify=True)
    if path is None:
        raise StartError(f"{source} is missing: run 'conductor models pull {source}'")
    return _of_folder(converted(path, model.sha256), source, model.sha256, dtype)


def best_dtype() -> torch.dtype:
    """bfloat16 where this machine multiplies it in hardware (a GPU, AVX512-BF16, AMX), which is
    two to four times as fast; float32 elsewhere."""
    import torch

    cpu: Any = torch.cpu
    fast = torch.cuda.is_available() or cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if fast else torch.float32


def digest_of(folder: Path) -> str:
    """SHA-256 over the names and bytes of a folder's safetensors. Raises `BaseError` without."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise BaseError("the model's folder holds no safetensors: save the model in that format")
    total = hashlib.sha256()
    for path in files:
        own = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                own.update(block)
        total.update(f"{path.name} {own.hexdigest()}\n".encode())
    return total.hexdigest()


def _of_folder(folder: Path, name: str, digest: str, dtype: torch.dtype) -> Base:
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, use_safetensors=True,
            output_loading_info=True,
        )  # fmt: skip
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError):
        raise BaseError(
            "transformers cannot load this as a causal language model: take a folder with "
            "config.json and safetensors of a kind it knows"
        ) from None
    model, told = loaded
    if told["missing_keys"]:  # these were made up
        raise BaseError("weights are missing from the model's folder: save the whole model again")
    return _made(model, _tokenizer_in(folder), name, digest)


def _tokenizer_in(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise BaseError("the model's folder holds no tokenizer.json: save its fast tokenizer there")
    return _read_tokenizer(path)


def _read_tokenizer(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except Exception:  # noqa: BLE001  the library raises nothing narrower
        raise BaseError("tokenizer.json cannot be read: save the fast tokenizer again") from None


def _tiny(models: Path, dtype: torch.dtype, seed: int) -> Base:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    source = find_model(load_catalogue(), _TINY_TOKENIZER)
    path = locate(models, source)
    if path is None:
        raise StartError(f"{source.id} is missing: run 'conductor models pull {source.id}'")
    tokenizer = _read_tokenizer(tokenizer_of(path, source.sha256))
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=64, intermediate_size=128,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=True, eos_token_id=tokenizer.token_to_id(_TURN_ENDS),
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: Any = LlamaForCausalLM(config)
    model = made.to(dtype)
    total = hashlib.sha256(json.dumps(["tiny", seed, str(dtype)]).encode())
    for weight in model.state_dict().values():
        total.update(weight.to(torch.float32).numpy().tobytes())
    return _made(model, tokenizer, TINY, total.hexdigest())


def _made(model: Any, tokenizer: Tokenizer, name: str, digest: str) -> Base:
    model.eval().requires_grad_(False)
    chat = all(tokenizer.token_to_id(mark) is not None for mark in (_TURN_BEGINS, _TURN_ENDS))
    frame = CHATML if chat else PLAIN
    return Base(model, tokenizer, frame, _eos(model, tokenizer), name, digest)


def _eos(model: Any, tokenizer: Tokenizer) -> tuple[int, ...]:
    """A turn's end first, where there is one: it is what such a model was taught to end with."""
    named: list[int] = []
    for config in (model.generation_config, model.config):
        found = getattr(config, "eos_token_id", None)
        named += [found] if isinstance(found, int) else found or []
    turn = tokenizer.token_to_id(_TURN_ENDS)
    ordered = dict.fromkeys(([] if turn is None else [turn]) + named)
    if not ordered:
        raise BaseError("the model names no end token: set eos_token_id in its config.json")
    return tuple(ordered)
