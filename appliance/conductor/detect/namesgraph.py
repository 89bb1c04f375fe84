"""The tagger's network, rewritten from 4-bit to 8-bit weights when it is loaded.

What is published (BERT, Devlin et al. 2019, arXiv:1810.04805: 6 layers of 384, 12 heads) keeps
weights in 4 bits, which a CPU has to unfold at every use. The same weights as whole numbers of 7
bits run in the vector units of a server (VNNI) in a third of the time, and find the same names
(tests/bench/bench_names.py, tests/detection); 7, because sums of 8 could overflow in older units
(ONNX Runtime, "Quantize ONNX models", on `reduce_range`). A text is run alone, never in a padded
batch, so that what is found in it does not depend on what was asked beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from conductor.detect.namesproto import Array, Writer, read_graph

if TYPE_CHECKING:
    from onnxruntime import InferenceSession

WIDTH, LAYERS, HEADS = 384, 6, 12
MAX_TOKENS = 512
"""Positions that the network knows, the two marks around a text included."""

_BLOCK = 32
"""Weights that share a scale in the published file."""
_EPSILON = 1e-12
_OWN = "com.microsoft"
"""Where ONNX Runtime keeps operators that the standard has not."""

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Weights:
    """The published file, read: matrices by the node that multiplies by them, vectors by name."""

    matrices: dict[str, Floats]
    vectors: dict[str, Array]


class Network:
    """Token numbers in, logits out. Any thread may call it."""

    def __init__(self, session: InferenceSession, embedding: Embedding) -> None:
        self._session = session
        self._embedding = embedding

    @classmethod
    def open(cls, onnx: Path, *, threads: int = 1) -> Network:
        """Raises `OSError`, or `ValueError` if it is not the file that is meant."""
        try:
            weights = read_weights(onnx.read_bytes())
            model = build(weights)
            embedding = Embedding.of(weights)
        except KeyError:
            raise ValueError("the file holds another network") from None
        return cls(_session(model, threads), embedding)

    def logits(self, ids: list[int]) -> Floats:
        """[tokens, labels] for 1 to `MAX_TOKENS` token numbers."""
        (logits,) = self._session.run(None, {"states": self._embedding.of_tokens(ids)[None]})
        return np.asarray(logits[0], np.float32)


@dataclass(frozen=True)
class Embedding:
    """What a token and its place are to the network; the table stays in 8 bits."""

    words: NDArray[np.uint8]
    zero: int
    scale: np.float32
    places: Floats
    """[MAX_TOKENS, WIDTH]: position and the one segment there is, summed."""

    @classmethod
    def of(cls, weights: Weights) -> Embedding:
        """Raises `KeyError` when a table is missing."""
        words = weights.vectors["bert.embeddings.word_embeddings.weight_quantized"]
        zero, scale = _scale_of(weights, "word")
        places = _table(weights, "position") + _table(weights, "token_type")[0]
        return cls(words.copy(), zero, scale, places.astype(np.float32))

    def of_tokens(self, ids: list[int]) -> Floats:
        """[tokens, WIDTH]"""
        rows = self.words[ids].astype(np.float32)
        rows -= self.zero
        rows *= self.scale
        rows += self.places[: len(ids)]
        return rows


def read_weights(data: bytes) -> Weights:
    """Raises `ValueError` if this is no such file, `KeyError` if something is missing in it."""
    nodes, arrays = read_graph(data)
    matrices = {}
    for node in nodes:
        if node.kind == "MatMulNBits":
            name = node.name.removeprefix("/").removesuffix("/MatMul_Q4").replace("/", ".")
            matrices[name] = _unfold(arrays[node.inputs[1]], arrays[node.inputs[2]])
    return Weights(matrices, arrays)


def _unfold(packed: Array, scales: Array) -> Floats:
    """[in, out] of 4-bit weights, two a byte, low half first, 8 meaning nought."""
    outs = packed.shape[0]
    whole = np.empty((outs, packed.shape[1], _BLOCK), np.float32)
    whole[..., 0::2] = packed & 15
    whole[..., 1::2] = packed >> 4
    whole -= 8
    whole *= scales.reshape(outs, -1, 1)
    return whole.reshape(outs, -1).T


def build(weights: Weights) -> bytes:
    """The network as an ONNX model: `states` [1, tokens, WIDTH] to `logits`. Raises `KeyError`."""
    graph = Writer()
    states = graph.input("states", [1, "tokens", WIDTH])
    states = _normalise(graph, weights, states, "bert.embeddings.LayerNorm")
    graph.constant("split", np.full(3, WIDTH, np.int64))
    for layer in range(LAYERS):
        states = _layer(graph, weights, states, f"bert.encoder.layer.{layer}")
    logits = _multiply(graph, weights, states, ["classifier"])
    graph.output(logits, [1, "tokens", weights.vectors["classifier.bias"].size])
    return graph.model()


def _layer(graph: Writer, weights: Weights, states: str, name: str) -> str:
    mixed = _attend(graph, weights, states, f"{name}.attention.self")
    mixed = _multiply(graph, weights, mixed, [f"{name}.attention.output.dense"])
    states = graph.node("Add", [mixed, states], [f"{name}.sum"])
    states = _normalise(graph, weights, states, f"{name}.attention.output.LayerNorm")
    wide = _multiply(graph, weights, states, [f"{name}.intermediate.dense"])
    wide = graph.node("Gelu", [wide], [f"{name}.gelu"], domain=_OWN)
    narrow = _multiply(graph, weights, wide, [f"{name}.output.dense"])
    states = graph.node("Add", [narrow, states], [f"{name}.end"])
    return _normalise(graph, weights, states, f"{name}.output.LayerNorm")


def _attend(graph: Writer, weights: Weights, states: str, name: str) -> str:
    three = [f"{name}.{part}" for part in ("query", "key", "value")]
    joined = _multiply(graph, weights, states, three)
    parts = [f"{part}.of" for part in three]
    graph.node("Split", [joined, "split"], parts, axis=2)
    return graph.node("MultiHeadAttention", parts, [f"{name}.mixed"], domain=_OWN, num_heads=HEADS)


def _normalise(graph: Writer, weights: Weights, states: str, name: str) -> str:
    scale = graph.constant(f"{name}.weight", weights.vectors[f"{name}.weight"])
    shift = graph.constant(f"{name}.bias", weights.vectors[f"{name}.bias"])
    return graph.node(
        "LayerNormalization", [states, scale, shift], [f"{name}.of"], axis=-1, epsilon=_EPSILON
    )


def _multiply(graph: Writer, weights: Weights, states: str, names: list[str]) -> str:
    """Times the matrices side by side, plus their biases: inputs are put in 8 bits as they come."""
    name = names[0]
    matrix = np.concatenate([weights.matrices[n] for n in names], axis=1)
    bias = np.concatenate([weights.vectors[f"{n}.bias"] for n in names])
    scale = np.abs(matrix).max(axis=0) / 63
    whole = np.round(matrix / scale).astype(np.int8)
    inputs = [
        states,
        graph.constant(f"{name}.whole", whole),
        graph.constant(f"{name}.scale", scale.astype(np.float32)),
        "",
        graph.constant(f"{name}.bias", bias),
    ]
    return graph.node("DynamicQuantizeMatMul", inputs, [f"{name}.times"], domain=_OWN)


def _scale_of(weights: Weights, kind: str) -> tuple[int, np.float32]:
    name = f"bert.embeddings.{kind}_embeddings.weight"
    zero, scale = weights.vectors[f"{name}_zero_point"], weights.vectors[f"{name}_scale"]
    return int(zero), np.float32(scale)


def _table(weights: Weights, kind: str) -> Floats:
    zero, scale = _scale_of(weights, kind)
    whole = weights.vectors[f"bert.embeddings.{kind}_embeddings.weight_quantized"]
    return (whole.astype(np.float32) - zero) * scale


def _session(model: bytes, threads: int) -> InferenceSession:
    from onnxruntime import ExecutionMode, InferenceSession, SessionOptions

    options = SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # what is wrong is raised; its log would go to our stderr
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # Sum and normalisation fused into one operator take six times as long on a CPU (0.9 ms, 0.15).
    return InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )
