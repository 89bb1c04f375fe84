"""Answers that wait to be judged: by whom, how long, how many; and what is said of each then."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from threading import Event

import orjson
import pytest

from conductor.errors import BadRequest, NotFound
from conductor.feedback import book as books
from conductor.feedback.book import FeedbackBook
from conductor.feedback.record import concludes, line
from conductor.feedback.waiting import Gone, Waiting
from conductor.settings import FeedbackConfig
from support.judged import answered, lines


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_only_the_key_that_asked_can_judge_and_only_once() -> None:
    waiting, one = Waiting(10**6, 60.0, Clock()), answered()
    waiting.put(one)
    assert waiting.take("other", "req_1") is Gone.UNKNOWN
    assert waiting.take("app", "req_2") is Gone.UNKNOWN
    assert waiting.take("app", "req_1") is one
    assert waiting.take("app", "req_1") is Gone.AGAIN


def test_after_a_while_it_is_let_go_and_so_is_the_name_of_a_judged_one() -> None:
    clock = Clock()
    waiting = Waiting(10**6, 60.0, clock)
    for name in ("req_1", "req_2"):
        waiting.put(answered(name))
    waiting.take("app", "req_2")
    clock.now += 60
    assert waiting.take("app", "req_1") is waiting.take("app", "req_2") is Gone.UNKNOWN
    assert len(waiting) == waiting.held_bytes == 0


def test_the_oldest_make_room_and_never_more_is_held_than_may_be() -> None:
    size = answered("req_10").size
    waiting = Waiting(3 * size, 60.0, Clock())
    for number in range(10, 30):
        waiting.put(answered(f"req_{number}"))
        assert waiting.held_bytes <= 3 * size
    assert waiting.take("app", "req_26") is Gone.UNKNOWN
    assert waiting.take("app", "req_27") == answered("req_27")


def test_one_that_is_larger_than_all_of_them_may_be_is_not_held() -> None:
    waiting = Waiting(10_000, 60.0, Clock())
    waiting.put(answered("req_1"))
    waiting.put(answered("req_2", question="x" * 20_000))
    assert len(waiting) == 1 and waiting.take("app", "req_1") == answered("req_1")


def test_a_flood_of_judged_ones_does_not_grow_without_end() -> None:
    waiting = Waiting(100_000, 60.0, Clock())
    for number in range(1000):
        waiting.put(answered(f"req_{number}"))
        waiting.take("app", f"req_{number}")
    assert len(waiting) < 200


# -- a line -----------------------------------------------------------------------------------


def test_a_line_says_how_the_plan_came_about_and_of_the_answer_only_its_end() -> None:
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    text = "It follows from what was said. The answer is 1,200 eggs."
    told = orjson.loads(line(answered(answer=text), 0.5, at))
    assert told["time"] == "2026-01-31T12:00:00.000+00:00"
    assert told["concludes"] == "1200" and "follows" not in str(told)
    assert (told["plan"], told["log_prob"], told["score"]) == ("0 q -\n", -0.25, 0.5)
    (planned,) = told["rounds"]
    assert planned["bundle"] == "f" * 64 and planned["candidates"] == ["a"]


def test_prose_is_told_apart_without_being_told() -> None:
    prose = "A poem of many lines, which rhyme now and then, but never where one waits for it. " * 3
    one, same, other = map(concludes, (prose, prose.upper().replace(" ", "\n"), prose + "Ever."))
    assert one == same != other and one.startswith("~") and "poem" not in one
    assert concludes(" \n ") == ""


def test_what_waits_does_not_show_its_texts() -> None:
    assert "many" not in repr(answered()) and "12" not in repr(answered())


# -- the book ---------------------------------------------------------------------------------


def book(folder: Path, counted: list[str]) -> FeedbackBook:
    return FeedbackBook(FeedbackConfig(), folder, counted.append)


async def test_what_cannot_be_written_is_counted_and_may_be_judged_again(tmp_path: Path) -> None:
    counted: list[str] = []
    (tmp_path / "f").write_text("a file where the folder should be")
    kept = book(tmp_path / "f", counted)
    kept.keep(answered())
    assert await kept.judge("app", "req_1", 1.0) is False
    (tmp_path / "f").unlink()
    assert await kept.judge("app", "req_1", 0.0) is True
    with pytest.raises(BadRequest):
        await kept.judge("app", "req_1", 1.0)
    with pytest.raises(NotFound):
        await kept.judge("app", "req_2", 1.0)
    await kept.close()
    assert counted == ["dropped", "recorded", "again", "unknown"]
    assert [told["score"] for told in lines(tmp_path / "f")] == [0.0]


async def test_a_slow_disk_holds_up_a_few_and_the_rest_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []
    kept, gate = book(tmp_path, counted), Event()
    real = kept._lines.append
    monkeypatch.setattr(kept._lines, "append", lambda line: (gate.wait(10), real(line)))
    names = [f"req_{number}" for number in range(books.MAX_WRITING + 3)]
    for name in names:
        kept.keep(answered(name))
    asked = [asyncio.create_task(kept.judge("app", name, 1.0)) for name in names]
    await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert counted == ["dropped"] * 3
    gate.set()
    assert sum(await asyncio.gather(*asked)) == books.MAX_WRITING == len(lines(tmp_path))
    await kept.close()


async def test_a_client_that_leaves_while_it_is_written_has_judged(tmp_path: Path) -> None:
    counted: list[str] = []
    kept = book(tmp_path, counted)
    kept.keep(answered())
    asked = asyncio.create_task(kept.judge("app", "req_1", 1.0))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    await kept.close()
    await asyncio.sleep(0.01)
    assert len(lines(tmp_path)) == 1 and counted == ["recorded"]
