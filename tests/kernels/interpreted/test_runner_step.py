"""One decode step through the kernels gives what torch gives for the whole text."""

from __future__ import annotations

import random
from functools import cache

import pytest
import torch

from conductor.plan.automaton import Automaton, compile
from conductor.plan.validate import PlanPool
from conductor.planner.lm_runner import Wanted
from conductor_kernels.matrix import Matrix
from conductor_kernels.runner.cache import Cache, Table, blocks_for
from conductor_kernels.runner.decoder import Decoder
from conductor_kernels.runner.deviceplans import DevicePlans
from conductor_kernels.runner.prefixes import Prefix
from conductor_kernels.runner.sequence import Sequence, own_blocks
from conductor_kernels.runner.shape import Rope, Shape
from conductor_kernels.runner.step import Share, singles
from conductor_kernels.runner.weights import Layer, Weights
from support.automata import BYTES, EOS, ids_in

pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")

SHAPE = Shape(
    vocabulary=300, hidden=64, inner=64, layers=2, heads=2, kv_heads=1, head_dim=64, positions=256,
    eps=1e-5, tied=False, rope=Rope(1e4),
)  # fmt: skip
IDS = random.Random(4).choices(range(256), k=70)


def made(kind: str) -> Decoder:
    chance = torch.Generator().manual_seed(1)

    def normal(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes, generator=chance) * 0.2

    def matrix(rows: int, inputs: int) -> Matrix:
        if kind == "dense":
            return Matrix(normal(rows, inputs))
        values = torch.randint(-127, 128, (rows, inputs), generator=chance, dtype=torch.int8)
        return Matrix(values, normal(rows, 1).abs() / 100)

    layer = Layer(
        input_norm=1 + normal(64), qkv=matrix(256, 64), qkv_bias=normal(256),
        out=matrix(64, 128), out_bias=None, inner_norm=1 + normal(64),
        gate_up=matrix(128, 64), down=matrix(64, 64),
    )  # fmt: skip
    weights = Weights(normal(300, 64), (layer, layer), 1 + normal(64), normal(300, 64))
    return Decoder(SHAPE, weights, Cache(SHAPE, 512, torch.device("cpu"), torch.float32))


def table(ours: Decoder, tokens: int) -> Table:
    return Table(ours.cache.take(blocks_for(tokens)))


@pytest.mark.parametrize("kind", ["dense", "int8"])
def test_a_decode_step_of_several_sequences_is_that_of_their_whole_texts(kind: str) -> None:
    ours = made(kind)
    texts = [IDS[:65], IDS[3:36]]
    with torch.inference_mode():
        whole = ours._prefill([Share(ids, 0, table(ours, len(ids))) for ids in texts])
        begun = [Share(ids[:-1], 0, table(ours, len(ids))) for ids in texts]
        ours._prefill(begun)
    last = [Share(ids[-1:], len(ids) - 1, share.table)
            for ids, share in zip(texts, begun, strict=True)]  # fmt: skip
    step = singles([*last, last[0]], torch.device("cpu"))
    step.slots[2], step.lengths[2] = -1, 0
    assert torch.allclose(ours.decode(step)[:2], whole, atol=1e-4, rtol=1e-4)


@cache
def automaton() -> Automaton:
    return Automaton(compile(BYTES, [EOS]), PlanPool(3))


def test_a_launch_of_the_device_writes_the_likeliest_allowed_token() -> None:
    ours = made("dense")
    wanted = Wanted((), tuple(IDS[:40]), automaton(), max_tokens=2)
    sequence = Sequence(wanted, Prefix((), Table(())), ours.cache.take(own_blocks(wanted)))
    sequence.begin()
    device = DevicePlans[str](ours, 1)
    assert device.admit("it", wanted.automaton)
    ours.forward([share := sequence.share(40, spare=1)])
    sequence.read(share)
    device.start("it", sequence)
    (token,) = device.launch()["it"].tokens
    with torch.inference_mode():
        hidden = ours._prefill([Share(wanted.rest, 0, table(ours, 40))])[0]
    allowed = sorted(ids_in(wanted.automaton.allowed(wanted.automaton.start())))
    scores = (ours._weights.head[allowed] @ hidden).log_softmax(0)
    assert token.id == allowed[int(scores.argmax())] and not token.forced
    assert token.log_prob == pytest.approx(float(scores.max()), abs=1e-4)
    assert len(allowed) > 1
