"""TensorRT-LLM as it is installed: where its names live in that version, and whether they fit.

1.2 is the last stable line with the engine backend; from 1.3 on the PyTorch backend is the only
one, and some modules have moved. Every name that we use is resolved here, and its signature
compared with what we pass, when a model is loaded: so a version that differs is told by what
differs, and not by a failure in the middle of a plan.

Source of the names: TensorRT-LLM's API stability references and its guide to new models.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from types import MappingProxyType
from typing import Any, NoReturn

from conductor.errors import StartError

KNOWN = ((1, 2), (1, 3), (1, 4))
_ENGINE_LINE = (1, 2)
_INSTALL = "docs/tensorrt-llm.md says how to install it"

_PLACES: Mapping[str, tuple[str, ...]] = {
    "LLM": ("tensorrt_llm",),
    "SamplingParams": ("tensorrt_llm",),
    "LogitsProcessor": ("tensorrt_llm.sampling_params",),
    "KvCacheConfig": ("tensorrt_llm.llmapi",),
    "CudaGraphConfig": ("tensorrt_llm.llmapi",),
    "RequestOutput": ("tensorrt_llm.llmapi",),
}
"""What every runner needs: the modules that may hold a name, the older first."""

MODEL_PLACES: Mapping[str, tuple[str, ...]] = {
    "DecoderModel": ("tensorrt_llm._torch.models.modeling_utils",),
    "DecoderModelForCausalLM": ("tensorrt_llm._torch.models.modeling_utils",),
    "register_auto_model": ("tensorrt_llm._torch.models.modeling_utils",),
    "Attention": (
        "tensorrt_llm._torch.modules.attention",
        "tensorrt_llm._torch.attention.attention",
    ),
    "PositionalEmbeddingParams": (
        "tensorrt_llm._torch.attention_backend.interface",
        "tensorrt_llm._torch.attention.backends.interface",
    ),
    "RopeParams": (
        "tensorrt_llm._torch.attention_backend.interface",
        "tensorrt_llm._torch.attention.backends.interface",
    ),
    "PositionEmbeddingType": ("tensorrt_llm.functional",),
    "DecoderLayer": ("tensorrt_llm._torch.modules.decoder_layer",),
    "Embedding": ("tensorrt_llm._torch.modules.embedding",),
    "RMSNorm": ("tensorrt_llm._torch.modules.rms_norm",),
}
"""What our model classes are made of."""

_USED: Mapping[str, tuple[str, ...]] = {
    "LLM": (
        *("model", "skip_tokenizer_init", "trust_remote_code", "dtype", "max_batch_size"),
        *("max_seq_len", "max_num_tokens", "enable_chunked_prefill", "kv_cache_config"),
    ),
    "LLM.generate_async": ("inputs", "sampling_params", "streaming"),
    "LLM.get_stats": ("timeout",),
    "LLM.shutdown": (),
    "SamplingParams": (
        *("max_tokens", "end_id", "pad_id", "top_k", "stop_token_ids"),
        *("include_stop_str_in_output", "detokenize", "logits_processor"),
    ),
    "LogitsProcessor.__call__": ("req_id", "logits", "token_ids", "stream_ptr", "client_id"),
    "KvCacheConfig": (
        *("enable_block_reuse", "tokens_per_block", "max_tokens", "free_gpu_memory_fraction"),
    ),
    "CudaGraphConfig": ("batch_sizes", "enable_padding"),
    "RequestOutput.abort": (),
}
"""Arguments that we pass by name, or that we are called with."""

MODEL_USED: Mapping[str, tuple[str, ...]] = {
    "DecoderModelForCausalLM": ("model", "config", "hidden_size", "vocab_size"),
    "DecoderModelForCausalLM.load_weights": ("weights",),
    "register_auto_model": ("name",),
    "Attention": (
        *("hidden_size", "num_attention_heads", "num_key_value_heads", "bias", "dense_bias"),
        *("max_position_embeddings", "pos_embd_params", "layer_idx", "dtype", "config"),
    ),
    "PositionalEmbeddingParams": ("type", "rope"),
    "RopeParams.from_config": ("config",),
    "Embedding": ("num_embeddings", "embedding_dim", "dtype"),
    "RMSNorm": ("hidden_size", "eps", "dtype"),
}


@dataclass(frozen=True)
class Api:
    """The names of one installed version."""

    version: str
    names: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.names[name]
        except KeyError:
            raise AttributeError(name) from None

    @property
    def line(self) -> tuple[int, int]:
        """Such as (1, 2)."""
        return _line(self.version)

    def engine_llm(self) -> Any:
        """The `LLM` of the engine backend. Raises `StartError` where there is none any more."""
        if self.line != _ENGINE_LINE:
            raise StartError(
                f"TensorRT-LLM {self.version} has no engine backend, 1.2.1 was the last with it: "
                "compile the bundle with --target tensorrt-llm"
            )
        return _imported("tensorrt_llm._tensorrt_engine").LLM


def resolve() -> Api:
    """What every runner needs of the installed version. Raises `StartError` when none is there, it
    cannot be loaded, it is of an unknown version, or something in it differs."""
    version = str(getattr(_imported("tensorrt_llm"), "__version__", "of no version"))
    if _line(version) not in KNOWN:
        known = ", ".join(f"{major}.{minor}" for major, minor in KNOWN)
        raise StartError(f"TensorRT-LLM {version} is not known here, only {known}: {_INSTALL}")
    names = dict(_resolved(_PLACES, version))
    _check(names, _USED, version)
    return Api(version, MappingProxyType(names))


def resolve_models(api: Api) -> Api:
    """The same with what model classes are made of."""
    names = dict(_resolved(MODEL_PLACES, api.version))
    _check(names, MODEL_USED, api.version)
    return Api(api.version, MappingProxyType({**api.names, **names}))


def _line(version: str) -> tuple[int, int]:
    parts = version.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return 0, 0


def _imported(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "tensorrt_llm":
            raise StartError(
                f"TensorRT-LLM, or its {module}, is not installed: {_INSTALL}"
            ) from None
        raise StartError(f"TensorRT-LLM lacks {error.name}: {_INSTALL}") from None
    except (ImportError, OSError, RuntimeError) as error:
        # It loads CUDA and MPI as it is imported, and fails where either is missing.
        raise StartError(
            f"TensorRT-LLM cannot be loaded here ({type(error).__name__}): it needs an NVIDIA "
            f"driver, CUDA and MPI; {_INSTALL}"
        ) from None


def _resolved(places: Mapping[str, tuple[str, ...]], version: str) -> Iterator[tuple[str, Any]]:
    for name, modules in places.items():
        found = next(filter(None, (_held(module, name) for module in modules)), None)
        if found is None:
            _differs(version, f"{name} is in none of {', '.join(modules)}")
        yield name, found


def _held(module: str, name: str) -> Any:
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError as error:
        if error.name and module.startswith(error.name):
            return None
        raise StartError(f"TensorRT-LLM lacks {error.name}: {_INSTALL}") from None


def _check(names: Mapping[str, Any], used: Mapping[str, tuple[str, ...]], version: str) -> None:
    for place, arguments in used.items():
        name, _, member = place.partition(".")
        called = getattr(names[name], member, None) if member else names[name]
        if called is None:
            _differs(version, f"there is no {place}")
        missing = _missing(called, arguments)
        if missing:
            _differs(version, f"{place} has no {', '.join(missing)}")


def _missing(called: Callable[..., Any], arguments: tuple[str, ...]) -> list[str]:
    """Those that its signature does not name. A class of settings may take them as fields."""
    taken = set(inspect.signature(called).parameters) | set(getattr(called, "model_fields", ()))
    return [name for name in arguments if name not in taken]


def _differs(version: str, how: str) -> NoReturn:
    raise StartError(
        f"TensorRT-LLM {version} differs from what this release was written for: {how}"
    )
