"""The lattice: join, meet, flow, and the text form of labels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.labels import Clearance, Label, Lattice, join_all

LATTICE = Lattice(("public", "internal", "secret-most"), frozenset({"pii", "health", "unscanned"}))

compartments = st.frozensets(st.sampled_from(sorted(LATTICE.compartments)))
labels = st.builds(Label, st.integers(0, 2), compartments)
clearances = st.builds(Clearance, st.integers(0, 2), compartments)


@given(labels, labels, labels)
def test_join_is_associative_commutative_and_idempotent(a: Label, b: Label, c: Label) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a


@given(labels, labels, clearances)
def test_what_is_joined_flows_exactly_where_both_parts_do(a: Label, b: Label, c: Clearance) -> None:
    assert a.join(b).flows_to(c) == (a.flows_to(c) and b.flows_to(c))


@given(labels, clearances, clearances)
def test_a_narrowed_clearance_receives_exactly_what_both_do(
    label: Label, a: Clearance, b: Clearance
) -> None:
    assert label.flows_to(a.meet(b)) == (label.flows_to(a) and label.flows_to(b))


@given(labels)
def test_everything_flows_to_a_clearance_at_the_top_and_the_text_form_reads_back(
    label: Label,
) -> None:
    top = LATTICE.top
    assert label.flows_to(Clearance(top.level, top.compartments))
    assert label.join(top) == top
    assert LATTICE.parse(LATTICE.show(label)) == label


def test_the_join_of_nothing_is_an_error_and_not_public() -> None:
    with pytest.raises(ValueError, match="no labels"):
        join_all(iter(()))
    assert join_all([Label(1), Label(0, frozenset({"pii"}))]) == Label(1, frozenset({"pii"}))


@pytest.mark.parametrize(
    "text", ["", "pii", "internal+", "internal+secret", "INTERNAL", "public+x"]
)
def test_text_that_is_no_label_is_refused_without_being_repeated(text: str) -> None:
    with pytest.raises(ValueError, match="not a label of this site") as caught:
        LATTICE.parse(text)
    assert not text or f"'{text}'" not in str(caught.value)


@pytest.mark.parametrize(
    ("levels", "names"),
    [
        ((), {"unscanned"}),
        (("public",), {"pii"}),
        (("public", "public"), {"unscanned"}),
        (("public",), {"unscanned", "public"}),
        (("Public",), {"unscanned"}),
        (("a+b",), {"unscanned"}),
        (("a\n",), {"unscanned"}),
    ],
)
def test_a_lattice_that_could_be_misread_cannot_be_made(
    levels: tuple[str, ...], names: set[str]
) -> None:
    with pytest.raises(ValueError, match=r"level|compartment|name"):
        Lattice(levels, frozenset(names))
