"""The heads in Triton's interpreter: against torch, against each other, and by their chances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from conductor_kernels.matrix import Matrix
from conductor_kernels.ops import choose as ops
from conductor_kernels.ops import choose_all, choose_fold
from support.packed_matrices import drawn
from support.planted_faults import Plant, planted

pytestmark = [
    pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:(invalid value|divide by zero|All-NaN):RuntimeWarning"),
]
Choose = Callable[..., tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Case:
    hidden: Tensor
    head: Matrix
    allowed: Tensor
    """[B, V] bool"""
    listed: tuple[bool, ...]
    temperature: Tensor
    seed: Tensor
    drawn: Tensor

    def run(self, choose: Choose = ops.choose) -> tuple[Tensor, Tensor]:
        head = self.head
        rows = torch.zeros(len(self.hidden), 64, dtype=torch.int32)
        count = torch.full((len(self.hidden),), -1, dtype=torch.int32)
        for one, listed in enumerate(self.listed):
            if listed:
                ids = self.allowed[one].nonzero()[:, 0]
                rows[one, : len(ids)], count[one] = ids, len(ids)
        return choose(self.hidden, head.values, head.scale, head.zero, head.group,
                      words(self.allowed), rows, count, self.temperature, self.seed,
                      self.drawn)  # fmt: skip


def words(masks: Tensor) -> Tensor:
    """The masks as bits, 32 a word."""
    padded = torch.nn.functional.pad(masks, (0, -masks.shape[1] % 32))
    bits = padded.view(len(masks), -1, 32).long() << torch.arange(32)
    return bits.sum(2).to(torch.int32)


def case(
    batch: int,
    vocabulary: int = 77,
    hidden: int = 64,
    allowed: int | None = None,
    dtype: torch.dtype = torch.float32,
    seed: int = -1,
) -> Case:
    """Every other sequence is listed."""
    wide = torch.Generator().manual_seed(11)
    masks = torch.rand(batch, vocabulary, generator=wide) < 0.4
    if allowed is not None:
        ranks = torch.rand(batch, vocabulary, generator=wide).argsort(1).argsort(1)
        masks = ranks < allowed
    return Case(
        torch.randn(batch, hidden, generator=wide).to(dtype),
        Matrix((torch.randn(vocabulary, hidden, generator=wide) / 3).to(dtype)),
        masks,
        tuple(bool(one % 2) for one in range(batch)),
        torch.rand(batch, generator=wide) + 0.5,
        torch.where(torch.arange(batch) % 3 == 2, -1, seed),
        torch.arange(batch, dtype=torch.int32),
    )


def exact(one: Case, tokens: Tensor) -> Tensor:
    """The log-probability of these tokens, in float64."""
    logits = one.hidden.double() @ one.head.dense().double().T / one.temperature[:, None].double()
    scores = logits.masked_fill(~one.allowed, -torch.inf).log_softmax(1)
    return scores.gather(1, tokens.long()[:, None])[:, 0]


def agrees(one: Case, choose: Choose = ops.choose) -> bool:
    token, log_prob = one.run(choose)
    wanted = one.run(ops.choose_reference)
    if not torch.equal(token, wanted[0]):
        return False
    return bool((log_prob - exact(one, token)).abs().max() < 1e-5)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("seed", [-1, 7, 5 << 40])
def test_it_chooses_what_torch_chooses_and_tells_its_exact_chance(batch: int, seed: int) -> None:
    assert agrees(case(batch, seed=seed))


def test_a_listed_sequence_chooses_what_the_whole_head_chooses() -> None:
    one = case(3, allowed=40, seed=9)
    by_rows, whole = (replace(one, listed=(way,) * 3).run() for way in (True, False))
    assert torch.equal(by_rows[0], whole[0])
    torch.testing.assert_close(by_rows[1], whole[1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["int8", "fp8", "int4"])
def test_a_packed_head_chooses_what_its_weights_say(kind: str) -> None:
    head = drawn(kind, 77, 128, 32)
    assert head.scale is not None
    one = replace(case(2, hidden=128, seed=3), head=replace(head, scale=head.scale / 200))
    alone = replace(case(1, hidden=128, seed=3), head=one.head)
    assert agrees(one) and agrees(alone)


def test_half_precision_chooses_by_the_numbers_that_it_has() -> None:
    assert agrees(case(2, dtype=torch.bfloat16)) and agrees(case(1, dtype=torch.float16))


def test_of_equal_logits_the_lowest_id_is_taken() -> None:
    one = case(2, vocabulary=150)
    one = replace(one, head=Matrix(torch.zeros_like(one.head.values)))
    for listed in ((True, True), (False, False)):
        token, _ = replace(
            one, allowed=one.allowed & one.allowed.cumsum(1).gt(3), listed=listed
        ).run()
        assert token.tolist() == [int(mask.nonzero()[3]) for mask in one.allowed]


@pytest.mark.parametrize("batch", [1, 2])
def test_one_allowed_token_is_certain_and_none_gives_none(batch: int) -> None:
    one = case(batch, allowed=1, seed=2)
    token, log_prob = one.run()
    assert token.tolist() == one.allowed.int().argmax(1).tolist() and not log_prob.any()
    for listed in ((True,) * batch, (False,) * batch):
        none = replace(one, allowed=one.allowed & False, listed=listed)
        for choose in (ops.choose, ops.choose_reference):
            token, log_prob = none.run(choose)
            assert token.tolist() == [-1] * batch and bool(log_prob.isinf().all())


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_logits_that_are_no_numbers_are_told_and_stay_with_their_sequence(bad: float) -> None:
    one = case(2)
    hidden = one.hidden.clone()
    hidden[1, 0] = bad
    for listed in ((False, True), (False, False)):
        for choose in (ops.choose, ops.choose_reference):
            token, log_prob = replace(one, hidden=hidden, listed=listed).run(choose)
            assert token[1] == -1 and log_prob[1].isnan()
            assert token[0] == one.run()[0][0] and log_prob[0].isfinite()


def test_a_draw_depends_on_nothing_but_its_own_seed_and_count() -> None:
    one = case(3, seed=21)
    wide = torch.zeros(3, 16, dtype=torch.int32)
    wide[:, 11] = one.drawn
    whole = replace(one, drawn=wide[:, 11]).run()
    for row in (0, 1):
        at = slice(row, row + 1)
        alone = replace(one, hidden=one.hidden[at], allowed=one.allowed[at], seed=one.seed[at],
                        temperature=one.temperature[at], drawn=one.drawn[at],
                        listed=(not one.listed[row],))  # fmt: skip
        assert alone.run()[0][0] == whole[0][row]


def _chi_square(found: Tensor, chances: Tensor) -> float:
    wanted = chances * found.sum()
    assert wanted.min() > 5
    return float(((found - wanted).square() / wanted).sum())


def test_draws_have_the_chances_of_the_masked_softmax() -> None:
    """200,000 draws of the reference, and that the kernel's are the same: chi-square with 11
    degrees of freedom is above 31.3 once in a thousand."""
    from conductor_kernels.ops.philox import log_exponential_reference

    one = case(1, vocabulary=29, allowed=12)
    one = replace(one, temperature=3 * one.temperature)
    tokens = one.allowed[0].nonzero()[:, 0]
    logits = (one.hidden @ one.head.dense().T / one.temperature)[0, tokens]
    draws = torch.arange(200_000)
    noise = log_exponential_reference(torch.tensor(5), draws[:, None], tokens[None])
    taken = (logits - noise).argmax(1)
    found = torch.bincount(taken, minlength=12).double()
    assert _chi_square(found, logits.double().softmax(0)) < 31.3
    batch = replace(one, hidden=one.hidden.expand(48, -1), allowed=one.allowed.expand(48, -1),
                    temperature=one.temperature.expand(48).contiguous(), seed=torch.full((48,), 5),
                    drawn=draws[:48].int(), listed=(False,) * 48)  # fmt: skip
    assert torch.equal(batch.run()[0].long(), tokens[taken[:48]])


def test_a_sharp_temperature_takes_the_likeliest() -> None:
    one = case(3, seed=4)
    sharp = replace(one, temperature=torch.full((3,), 1e-4))
    likeliest = replace(one, seed=torch.full((3,), -1)).run()[0]
    assert torch.equal(sharp.run()[0], likeliest)


@pytest.mark.parametrize(
    "plant",
    [
        Plant("tl.where(allowed, score, float", "tl.where(token >= 0, score, float"),
        Plant("totals * tl.exp(its - largest)", "totals"),
        Plant("z - noise", "z + noise"),
        Plant("tl.where(token == chosen[None, :], z", "tl.where(token >= 0, z"),
        Plant("tl.where(scores == best, tokens, NO_TOKEN)", "tokens"),
    ],
    ids=str,
)
def test_a_fault_in_the_fold_is_found(
    plant: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = planted(choose_fold, plant, tmp_path)
    monkeypatch.setattr(choose_all, "fold", wrong.fold)
    monkeypatch.setattr(ops, "join", wrong.join)
    assert not (agrees(case(1, seed=7)) and agrees(case(1, seed=8)))


def test_the_op_is_what_torch_expects_of_an_op() -> None:
    found: list[tuple[Tensor | int | None, ...]] = []

    def keep(*arguments: Tensor | int | None) -> tuple[Tensor, Tensor]:
        found.append(arguments)
        return torch.empty(0), torch.empty(0)

    case(2).run(keep)
    torch.library.opcheck(ops.choose, found[0])
    with FakeTensorMode() as fake:
        some = [fake.from_tensor(one) if isinstance(one, Tensor) else one for one in found[0]]
        token, log_prob = ops.choose(*some)
    assert (token.shape, token.dtype) == ((2,), torch.int32) and log_prob.dtype == torch.float32
