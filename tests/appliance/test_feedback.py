"""Judging answers over real sockets: what is written, by whom, and above all what is not."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from conductor.errors import ConfigError
from conductor.plan.language import parse
from conductor.planner.engine import Planned
from support.appliance import CLEAN, IBAN, TRUSTED_KEY, Box, appliance
from support.configs import Tree, overridden, small_site
from support.judged import KEEPS, folder, judge, lines, post
from support.leaks import audit_bytes, logged, public_bytes
from support.leaving import records
from support.rounds import FINAL, LOOK, Scripted, Voice, ask, talking

TWO, CHAIN = "0 q -\n1 q -\n", "0 q Extract.\n1 0 Solve.\n"
Patch = pytest.MonkeyPatch


def planning(*script: Any) -> Scripted:
    return Scripted(script or [("0 q -\n", FINAL)])


async def counted(box: Box) -> Counter[str]:
    text = (await public_bytes(box))["/metrics"].decode()
    ours = [line for line in text.splitlines() if line.startswith("conductor_feedback_total")]
    return Counter({line.split('"')[1]: int(float(line.split()[-1])) for line in ours})


# -- off, as long as nobody turns it on -------------------------------------------------------


async def test_where_nobody_turned_it_on_nothing_is_kept(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, planning(), Voice("42")) as box:
        told = await ask(box)
        refused = await judge(box, told.headers["x-request-id"])
        assert refused.status_code == 404 and "feedback.max_label" in refused.text
        assert not folder(box).exists()
        assert "judged-questions-kept" not in records(box, "start")[0]["weakened"]


async def test_a_site_that_keeps_questions_says_so_in_its_log(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, planning(), Voice("42"), appliance=KEEPS) as box:
        assert "judged-questions-kept" in records(box, "start")[0]["weakened"]


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ({"max_label": "secret"}, "unknown-label"),
        ({"wait_s": 60}, "missing-label"),
        ({"max_label": "internal", "max_files": 0}, "bad-value"),
        ({"max_label": "internal", "answers": True}, "unknown-key"),
    ],
)
def test_a_wrong_section_is_refused_with_its_place(
    tmp_path: Path, section: Tree, code: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        small_site(tmp_path, appliance={"feedback": section})
    assert [fault.code for fault in refused.value.faults] == [code]


# -- judged -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
async def test_a_judged_answer_is_one_line(monkeypatch: Patch, stream: bool) -> None:
    planned = Planned(parse("0 q -\n"), "default", log_prob=-0.5, bundle="ab" * 32)
    voice = Voice("So the answer is 42")
    async with talking(monkeypatch, planning(planned), voice, appliance=KEEPS) as box:
        told = await ask(box, stream=stream)
        assert not folder(box).exists()
        judged = await judge(box, told.headers["x-request-id"], 0.75)
        assert judged.status_code == 200 and judged.json()["recorded"] is True
        (line,) = lines(box)
        assert line["question"] == CLEAN and line["request_id"] == told.headers["x-request-id"]
        assert (line["worker"], line["score"], line["output_tokens"]) == ("voice-0", 0.75, 5)
        assert line["concludes"] == "42" and (line["plan"], line["step"]) == ("0 q -\n", 0)
        assert line["log_prob"] == -0.5 and line["cost_weight"] == 0.03
        assert line["rounds"] == [
            {"plan": "0 q -\n", "candidates": ["voice-0", "remote-a"], "engine": "default",
             "where": "serve", "bundle": "ab" * 32, "look": False, "log_prob": -0.5}
        ]  # fmt: skip


async def test_an_answer_of_later_rounds_is_its_workers(monkeypatch: Patch) -> None:
    engine = planning((TWO, LOOK), Planned(parse("vote 1 -\n", 2), "default"))
    voices = Voice("41"), Voice("It is 42.")
    async with talking(monkeypatch, engine, *voices, appliance=KEEPS) as box:
        told = await ask(box)
        await judge(box, told.headers["x-request-id"])
        (line,) = lines(box)
        assert (line["worker"], line["step"], line["plan"]) == ("voice-1", 1, TWO)
        assert [one["plan"] for one in line["rounds"]] == [TWO, "vote 1 -\n"]
        assert line["output_tokens"] == 5 and "log_prob" not in line


async def test_what_a_vote_elects_is_the_workers_who_wrote_it(monkeypatch: Patch) -> None:
    engine = planning(("0 q -\n1 q -\n2 q -\nvote 0,1,2 -\n", FINAL))
    voices = Voice("41"), Voice("It is 42."), Voice("42")
    async with talking(monkeypatch, engine, *voices, appliance=KEEPS) as box:
        told = await ask(box)
        assert told.headers["x-conductor-model"] == "vote"
        await judge(box, told.headers["x-request-id"])
        (line,) = lines(box)
        assert line["worker"] == f"voice-{[voice.says for voice in voices].index(told.text)}"


async def test_a_second_judgement_is_refused_and_the_first_counts(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, planning(), Voice("42"), appliance=KEEPS) as box:
        told = await ask(box)
        name = told.headers["x-request-id"]
        assert (await judge(box, name, 0)).status_code == 200
        again = await judge(box, name, 1)
        assert (again.status_code, again.json()["error"]["code"]) == (400, "already_judged")
        assert [line["score"] for line in lines(box)] == [0.0]
        assert await counted(box) == Counter(recorded=1, again=1)


async def test_another_key_cannot_judge_it_nor_learn_that_it_is_there(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, planning(), Voice("42"), appliance=KEEPS) as box:
        told = await ask(box)
        other = await judge(box, told.headers["x-request-id"], key=TRUSTED_KEY)
        nobody = await judge(box, "req_0", key=TRUSTED_KEY)
        assert other.status_code == nobody.status_code == 404
        assert other.json() == nobody.json()
        assert (await judge(box, told.headers["x-request-id"], key="wrong")).status_code == 401
        assert lines(box) == []


# -- never kept -------------------------------------------------------------------------------


async def test_what_is_labelled_above_can_never_be_judged(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, planning(), Voice("42"), appliance=KEEPS) as box:
        told = await ask(box, text=f"Pay to {IBAN}, please.")
        assert told.status == 200
        assert (await judge(box, told.headers["x-request-id"])).status_code == 404
        assert not folder(box).exists()


async def test_nor_a_question_whose_answer_is_labelled_above(monkeypatch: Patch) -> None:
    engine = planning((TWO, LOOK), ("", FINAL))
    voices = Voice("42"), Voice(f"Pay to {IBAN}.")
    async with talking(monkeypatch, engine, *voices, appliance=KEEPS) as box:
        told = await ask(box)
        assert "pii" in told.headers["x-conductor-label"]
        assert (await judge(box, told.headers["x-request-id"])).status_code == 404


async def test_nor_a_request_that_was_refused_or_failed(monkeypatch: Patch) -> None:
    async with talking(monkeypatch, planning(), Voice("", status=400), appliance=KEEPS) as box:
        told = await ask(box)
        assert told.status >= 400
        assert (await judge(box, told.headers["x-request-id"])).status_code == 404


async def test_no_word_of_it_is_anywhere_else(monkeypatch: Patch) -> None:
    words = "Where did the grey heron land?"
    with logged() as out:
        async with talking(monkeypatch, planning(), Voice("A reed bed"), appliance=KEEPS) as box:
            told = await ask(box, text=words)
            assert (await judge(box, told.headers["x-request-id"])).status_code == 200
            said = [*(await public_bytes(box)).values(), audit_bytes(box)]
    said.append(out.getvalue().encode())
    assert not any(word in data for data in said for word in (b"heron", b"reed bed"))


# -- bad input, bad disks ---------------------------------------------------------------------


NO_JUDGEMENTS: list[Any] = (
    [b"", b"{", b"[]", b'{"request_id": "x", "score": NaN}', b'{"score": 1, "score": 0}',
     {"request_id": "x"}, {"score": 1}, {"request_id": "", "score": 1},
     {"request_id": 7, "score": 1}, {"request_id": "x", "score": 1.01},
     {"request_id": "x", "score": -0.1}, {"request_id": "x", "score": True},
     {"request_id": "x", "score": "1"}, {"request_id": "x", "score": None},
     {"request_id": "x", "score": 1, "comment": "good"}]
)  # fmt: skip


async def test_what_is_no_judgement_is_refused() -> None:
    async with appliance(appliance=KEEPS, with_egress=False) as box:
        for body in NO_JUDGEMENTS:
            refused = await post(box, body)
            assert refused.status_code == 400, body
            assert refused.json()["error"]["type"] == "invalid_request_error"
        long = await post(box, {"request_id": "x" * 5000, "score": 1})
        assert long.status_code == 413
        assert await counted(box) == Counter()


async def test_a_full_disk_fails_no_request_and_is_counted(
    monkeypatch: Patch,
) -> None:
    async with talking(monkeypatch, planning(), Voice("42"), appliance=KEEPS) as box:
        folder(box).parent.mkdir(exist_ok=True)
        folder(box).write_text("no folder")
        told = await ask(box)
        name = told.headers["x-request-id"]
        judged = await judge(box, name)
        assert (judged.status_code, judged.json()["recorded"]) == (200, False)
        assert (await ask(box)).status == 200
        folder(box).unlink()
        assert (await judge(box, name)).json()["recorded"] is True
        assert await counted(box) == Counter(dropped=1, recorded=1)
        assert len(lines(box)) == 1


async def test_all_of_it_is_bounded_by_the_site(monkeypatch: Patch) -> None:
    bounds = {"feedback": {"max_file_bytes": 65_536, "max_files": 2, "wait_s": 60}}
    settings = overridden(KEEPS, bounds)
    text = "Why? " * 3500
    async with talking(monkeypatch, planning(), Voice("42"), appliance=settings) as box:
        for _ in range(9):
            told = await ask(box, text=text)
            assert (await judge(box, told.headers["x-request-id"])).json()["recorded"]
        files = sorted(folder(box).iterdir())
        assert [path.name for path in files] == ["feedback.1.jsonl", "feedback.jsonl"]
        assert all(0 < path.stat().st_size <= 65_536 for path in files)
        assert all(json.loads(line) for path in files for line in path.read_text().splitlines())
