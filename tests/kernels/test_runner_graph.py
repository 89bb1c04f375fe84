"""Each size of work is captured once, after its kernels have run, and replayed from then on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conductor_kernels.runner.graph import Graphs, bucket_for


@pytest.mark.parametrize(
    ("places", "bucket"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (16, 16)]
)
def test_a_bucket_has_room_for_its_places(places: int, bucket: int) -> None:
    assert bucket_for(places) == bucket


def test_a_size_is_warmed_up_captured_once_and_replayed() -> None:
    said = list[str]()

    def capture(work: Callable[[], None]) -> Callable[[], None]:
        said.append("capture")
        return work

    graphs = Graphs(
        lambda places: said.append(f"work {places}"),
        lambda places: said.append(f"warm up {places}"),
        capture,
    )
    graphs(3)
    assert said == ["warm up 4", "warm up 4", "capture", "work 4"]
    said.clear()
    graphs(4)
    assert said == ["work 4"]
    graphs(1)
    assert said[1:] == ["warm up 1", "warm up 1", "capture", "work 1"]
    said.clear()
    graphs.forget()
    graphs(4)
    assert said == ["warm up 4", "warm up 4", "capture", "work 4"]
