"""What a model name means, for a key: it may narrow the pool and never widens it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.core import TcpEndpoint
from conductor.errors import ModelNotAllowed, ModelNotFound
from conductor.selection import CONDUCTOR_MODELS, select
from support.rawpeer import local_worker, remote_worker

HOME = local_worker(TcpEndpoint("127.0.0.1", 9), "home/small-1")
FAR = remote_worker("far")
POOL = {worker.id: worker for worker in (HOME, FAR)}


@pytest.mark.parametrize(
    ("model", "preference", "home", "far", "planned"),
    [
        ("conductor", "balanced", True, True, True),
        ("conductor-local", "balanced", True, False, True),
        ("conductor-thrifty", "thrifty", True, True, True),
        ("conductor-quality", "quality", True, True, True),
        ("home/small-1", "balanced", True, False, False),
        ("far", "balanced", False, True, False),
    ],
)
def test_every_name_has_its_meaning(
    model: str, preference: str, home: bool, far: bool, planned: bool
) -> None:
    found = select(model, POOL, None)
    assert (found.model, found.preference) == (model, preference)
    assert (found.includes(HOME), found.includes(FAR)) == (home, far)
    assert (found.worker is None) is planned


@pytest.mark.parametrize("model", [*CONDUCTOR_MODELS, *POOL])
def test_a_key_may_use_only_the_names_that_it_lists(model: str) -> None:
    others = tuple(name for name in (*CONDUCTOR_MODELS, *POOL) if name != model)
    assert select(model, POOL, (model,)).model == model
    for allowed in ((), others):
        with pytest.raises(ModelNotAllowed) as refused:
            select(model, POOL, allowed)
        assert refused.value.status == 403 and refused.value.param == "model"


def test_a_worker_named_like_a_conductor_model_does_not_take_its_place() -> None:
    assert select("conductor-local", {"conductor-local": FAR}, None).worker is None


@given(st.text(max_size=300))
def test_no_other_name_means_anything_and_its_text_comes_back_harmless(name: str) -> None:
    if name in CONDUCTOR_MODELS or name in POOL:
        return
    for allowed in (None, (name,)):
        with pytest.raises(ModelNotFound) as refused:
            select(name, POOL, allowed)
        message = refused.value.message
        assert message.isprintable() and len(message) < 200
        message.encode()


@pytest.mark.parametrize("name", ["CONDUCTOR", "conductor ", "Far", "home", "small-1", "far\0", ""])
def test_names_are_exact(name: str) -> None:
    with pytest.raises(ModelNotFound):
        select(name, POOL, None)
