"""Text that an answer was cannot come back from a client with a lower label."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.flow.artifacts import ArtifactStore
from conductor.labels import Label, Lattice

LATTICE = Lattice(("public", "internal", "secret"), frozenset({"pii", "health", "unscanned"}))
WORDS = ("account", "board", "cedar", "delta", "ember", "frost", "grove", "harbor", "juniper")


def prose(seed: int, words: int = 60) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words)) + f" {seed}."


def stored(*answers: tuple[str, str], most: int = 100_000) -> ArtifactStore:
    store = ArtifactStore(most)
    for text, label in answers:
        store.remember(text, label)
    return store


@pytest.mark.parametrize(
    "returned",
    [
        pytest.param([prose(1)], id="as it was"),
        pytest.param(["hello", prose(1), "thanks"], id="among other texts"),
        pytest.param([f"You said: {prose(1)} Why?"], id="quoted"),
        pytest.param(["> " + prose(1).replace(" ", "\n> ").upper()], id="laid out anew"),
        pytest.param([prose(1)[:180]], id="its beginning"),
        pytest.param([prose(1)[-180:]], id="its end"),
        pytest.param([prose(1)[100:150], prose(1)[150:250]], id="dealt out over two messages"),
    ],
)
def test_an_answer_that_comes_back_has_its_label_again(returned: list[str]) -> None:
    store = stored((prose(1), "internal+pii"))
    assert store.label_of(returned, LATTICE) == Label(1, frozenset({"pii"}))


def test_other_texts_have_none() -> None:
    store = stored((prose(1), "secret"))
    for texts in ([], [""], [prose(2)], ["Yes."], [prose(1)[:40]], ["x" * 10_000]):
        assert store.label_of(texts, LATTICE) is None


def test_an_answer_of_a_few_words_is_not_known_again() -> None:
    store = stored(("No.", "secret"), ("Here is a summary of the document you provided:", "secret"))
    assert store.label_of(["No."], LATTICE) is None
    assert store.label_of(["Here is a summary of the document you provided:"], LATTICE) is None


def test_a_short_answer_is_known_again_alone_and_within_a_text() -> None:
    short = "The merger with Blue Heron closes on the ninth of March at noon in Zurich"
    store = stored((short, "secret"))
    for texts in ([short], ["well", short, "well"], [f"{prose(3)} {short}! {prose(4)}"]):
        assert store.label_of(texts, LATTICE) == Label(2)


def test_labels_of_several_answers_join() -> None:
    store = stored((prose(1), "internal+pii"), (prose(2), "secret+health"), (prose(3), "public"))
    both = f"{prose(2)} and {prose(1)}"
    assert store.label_of([both], LATTICE) == Label(2, frozenset({"pii", "health"}))
    assert store.label_of([prose(3)], LATTICE) == Label(0)


def test_an_answer_given_twice_has_both_labels_and_never_a_lower_one() -> None:
    store = stored((prose(1), "secret"), (prose(1), "internal+pii"), (prose(1), "public"))
    assert store.label_of([prose(1)], LATTICE) == Label(2, frozenset({"pii"}))


def test_a_label_that_the_policy_of_the_day_does_not_know_is_the_top() -> None:
    store = stored((prose(1), "internal+project-x"), (prose(2), "secret"))
    assert store.label_of([prose(1)], LATTICE) == LATTICE.top
    reordered = Lattice(("secret", "internal", "public"), LATTICE.compartments)
    assert store.label_of([prose(2)], reordered) == Label(0)


def test_stock_phrases_of_harmless_answers_label_nothing() -> None:
    stock, own = prose(1), prose(2)
    store = ArtifactStore()
    store.learn(f"{stock} Well then.", ["What do you always say?"])
    store.remember(f"{stock} {own}", "secret")
    assert store.label_of([stock], LATTICE) is None
    assert store.label_of([f"Once more: {own}"], LATTICE) == Label(2)


def test_what_was_sensitive_first_cannot_be_made_harmless() -> None:
    store = stored((prose(1), "secret"))
    store.learn(prose(1), ["A guess of the secret?"])
    assert store.label_of([prose(1)], LATTICE) == Label(2)
    store.remember(prose(1), "secret")
    assert store.label_of([prose(1)], LATTICE) == Label(2)


def test_a_client_cannot_teach_that_its_text_is_harmless() -> None:
    store = ArtifactStore()
    store.learn(f"You wrote: {prose(1)} Is that right?", ["Repeat this: " + prose(1).upper()])
    store.remember(prose(1), "secret")
    assert store.label_of([prose(1)], LATTICE) == Label(2)


def test_nothing_is_learned_of_an_exchange_that_is_too_long_to_compare() -> None:
    store = ArtifactStore()
    store.learn(prose(1), ["x" * 20_000])
    store.remember(prose(1), "secret")
    assert store.label_of([prose(1)], LATTICE) == Label(2)


def test_memory_is_bounded_and_the_last_half_of_it_is_certain() -> None:
    store = ArtifactStore(2000)
    for seed in range(200):
        store.remember(prose(seed), "secret")
    held = len(store._labelled._young) + len(store._labelled._old)
    assert held <= 2000
    assert store.label_of([prose(0)], LATTICE) is None
    # An answer of 60 words has some 120 fingerprints.
    assert all(store.label_of([prose(seed)], LATTICE) == Label(2) for seed in range(194, 200))


def test_what_keeps_coming_back_is_not_forgotten() -> None:
    store = stored((prose(0), "secret"), most=2000)
    for seed in range(1, 200):
        store.remember(prose(seed), "internal")
        assert store.label_of([prose(0)], LATTICE) is not None


def test_no_text_is_kept() -> None:
    store = stored((prose(1), "secret"))
    held = [store._labelled._young, store._labelled._old, store._sets]
    assert "juniper" not in repr(held) and "junipe" not in repr(held)


def test_threads_may_share_a_store() -> None:
    store = ArtifactStore()

    def work(seed: int) -> bool:
        store.remember(prose(seed), "secret")
        store.learn(prose(1000 + seed), [])
        return store.label_of([prose(seed)], LATTICE) == Label(2)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(300)))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["public", "internal+pii", "secret"]))),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 5),
)
def test_more_texts_never_lower_the_label(answers, sent, more) -> None:
    store = stored(*((prose(seed), label) for seed, label in answers))
    texts = [prose(seed) for seed in sent]
    before, after = store.label_of(texts, LATTICE), store.label_of([*texts, prose(more)], LATTICE)
    if before is not None:
        assert after is not None and after.join(before) == after
