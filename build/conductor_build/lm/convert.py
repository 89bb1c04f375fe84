"""A GGUF as what torch trains: its weights dequantised and its tokenizer, once, beside the file.

    <models>/<sha256>.torch/            the model as transformers saves it, in float32
    <models>/<sha256>.tokenizer.json    the tokenizer alone

Both are named by the hash of the GGUF, whose bytes the caller has checked. A folder is written
under another name and gets its own when it is complete and on the disk, so that a killed conversion
leaves nothing that loads; what it does leave, the next conversion removes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conductor.errors import StartError
from conductor_build.files import replace_file, sync_folder

_PARTIAL = ".converting-"


def converted(path: Path, sha256: str) -> Path:
    """The folder with the weights and the tokenizer of the GGUF at `path`, made if need be.

    Raises `StartError` when it cannot be made or written.
    """
    folder = path.with_name(f"{sha256}.torch")
    if folder.is_dir():
        return folder
    try:
        with _alone(path.parent):
            if not folder.is_dir():
                _convert(path, folder)
    except OSError as error:
        raise StartError(
            f"{folder} cannot be written ({os.strerror(error.errno or 0)}): make room there"
        ) from None
    return folder


def tokenizer_of(path: Path, sha256: str) -> Path:
    """The `tokenizer.json` of the GGUF at `path`, made if need be."""
    target = path.with_name(f"{sha256}.tokenizer.json")
    if not target.is_file():
        replace_file(target, _tokenizer(path).backend_tokenizer.to_str().encode())
    return target


@contextmanager
def _alone(models: Path) -> Iterator[None]:
    """One conversion at a time; what a killed one has left is removed."""
    with (models / ".convert.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in models.glob(f"{_PARTIAL}*"):
            shutil.rmtree(left)
        yield


def _convert(path: Path, folder: Path) -> None:
    partial = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=path.parent))
    try:
        _dequantise(path, partial)
        for file in partial.iterdir():
            file.chmod(0o644)
            _sync(file)
        partial.chmod(0o755)
        sync_folder(partial)
        partial.rename(folder)
        sync_folder(folder.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _dequantise(path: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(
            path.parent,
            gguf_file=path.name,
            quantization_config=GgufConfig(dequantize=True),
            dtype=torch.float32,
            local_files_only=True,
        )
        model.save_pretrained(folder)
        _tokenizer(path).save_pretrained(folder)
    except (ValueError, KeyError, RuntimeError):
        raise StartError(
            f"{path.name} holds a model that transformers cannot dequantise: take another"
        ) from None


def _tokenizer(path: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
