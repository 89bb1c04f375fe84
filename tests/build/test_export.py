"""The exported network says what the trained one says, for pools and batches of any size."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from onnxruntime import InferenceSession

from conductor.errors import BundleError
from conductor.planner import facts as factsfile
from conductor.planner import graph
from conductor_build.pocket.export import export
from conductor_build.pocket.state import State
from support.pocket import FACTS, perturbed, states

POOLS = range(1, 17)
CLOSED = -1e8


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return export(perturbed(1), FACTS)


@pytest.mark.parametrize("seed", [1, 2])
def test_scores_and_beliefs_are_those_of_torch_in_a_thousand_states(seed):
    pocket, rng = perturbed(seed), np.random.default_rng(seed)
    session = InferenceSession(export(pocket, FACTS)[graph.FILE])
    seen = clear = 0
    while seen < 1000:
        for pool in POOLS:
            state = states(rng, int(rng.integers(1, 13)), pool)
            seen += len(state.weight)
            clear += assert_same(pocket, session, state)
    assert clear > 500, "too few states in which anything could be told"


@pytest.mark.parametrize("odds", [8.0, 20.0, 80.0, -20.0])
def test_what_is_as_good_as_certain_is_a_number_like_any_other(odds):
    """A strong worker, an easy domain: log-chances far below what a float32 sigmoid can say."""
    pocket, rng = perturbed(3), np.random.default_rng(3)
    with torch.no_grad():
        pocket.latent.offset.fill_(odds)
    session = InferenceSession(export(pocket, FACTS)[graph.FILE])
    for pool in (1, 2, 5):
        assert_same(pocket, session, states(rng, 32, pool))


def assert_same(pocket, session, state: State) -> int:
    """How many of the states had one choice that was clearly the best."""
    with torch.no_grad():
        scores, torches = pocket(state)
        domain, ease = pocket.read(state.prompt)
    feed = {name: part.numpy() for name, part in state._asdict().items()}
    found = graph.Seen(*session.run(None, feed))
    allowed = scores.numpy() > CLOSED
    assert ((found.scores > CLOSED) == allowed).all()
    belief = torches.belief
    np.testing.assert_allclose(found.scores[allowed], scores.numpy()[allowed], atol=1e-4, rtol=1e-5)
    expected = (belief.right, belief.accepted, torches.price, domain, ease)
    for one, other in zip(found[1:], expected, strict=True):
        np.testing.assert_allclose(one, other.numpy(), atol=1e-4, rtol=1e-5)
    # Where the two best are further apart than the tolerance, the choice is the same.
    best = np.sort(scores.numpy(), 1)[:, -2:]
    clear = best[:, 1] - best[:, 0] > 2e-4
    assert (found.scores.argmax(1) == scores.numpy().argmax(1))[clear].all()
    return int(clear.sum())


def test_the_file_is_whole_by_itself_and_valid(files):
    model = onnx.load_from_string(files[graph.FILE])
    onnx.checker.check_model(model, full_check=True)
    assert not any(one.external_data for one in model.graph.initializer)
    assert {one.name for one in model.graph.input} == set(State._fields)
    assert tuple(one.name for one in model.graph.output) == graph.Seen._fields
    assert len(files[graph.FILE]) < 4 * 2**20


def test_the_same_weights_give_the_same_bytes_and_name_no_path(files):
    assert export(perturbed(1), FACTS) == files
    assert export(perturbed(2), FACTS) != files
    assert b".py" not in files[graph.FILE] and b"/build/" not in files[graph.FILE]


def test_exporting_changes_nothing_about_the_network():
    pocket = perturbed(3)
    before = {name: part.clone() for name, part in pocket.state_dict().items()}
    export(pocket, FACTS)
    assert pocket.training
    assert all(torch.equal(part, before[name]) for name, part in pocket.state_dict().items())


def test_facts_are_read_back_as_they_were_written(files):
    assert factsfile.decode(files[factsfile.FILE]) == FACTS


def test_facts_of_another_network_are_refused():
    with pytest.raises(ValueError, match="another network"):
        export(perturbed(1), replace(FACTS, domains=FACTS.domains[:2]))
    with pytest.raises(ValueError, match="another network"):
        export(perturbed(1), replace(FACTS, lexical=FACTS.lexical[:-1]))
    with pytest.raises(BundleError):
        export(perturbed(1), replace(FACTS, cost_weights=(2.0, 0.003)))
