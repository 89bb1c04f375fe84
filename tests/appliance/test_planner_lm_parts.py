"""A language-model bundle whose parts do not fit each other, or this release, is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from conductor.errors import BundleError, StartError
from conductor.planner import lm_runner
from conductor.planner.lm_parts import read_parts
from conductor.planner.lm_runner import RunnerSettings, find_runner
from conductor.planner.manifest import Refusal
from conductor.planner.server import load_engine
from conductor.settings import PlannerConfig
from support.lmbundles import END, VOCABULARY, files, parts, prompt_with, tokenizer_json

TOKENIZER, TABLES, PROMPT = "lm/tokenizer.json", "plan/tables.bin", "plan/prompt.json"


def test_parts_that_fit_are_read() -> None:
    read = parts(rounds=2)
    assert (read.tables.tokens, read.rounds) == (VOCABULARY, 2)
    assert read.prefix == tuple(read.encode(read.prompter.prefix))


def with_file(name: str, data: bytes) -> dict[str, bytes]:
    return files() | {name: data}


def other_tokenizer() -> bytes:
    document = json.loads(tokenizer_json())
    vocabulary = document["model"]["vocab"]
    one, other = sorted(vocabulary, key=vocabulary.__getitem__)[300:302]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    return json.dumps(document).encode()


def without(name: str) -> dict[str, bytes]:
    said = json.loads(files()[PROMPT])
    del said[name]
    return with_file(PROMPT, json.dumps(said).encode())


WRONG: dict[str, tuple[Callable[[], dict[str, bytes]], Refusal, str]] = {
    "an older prompt": (lambda: prompt_with(prompt_version=0), Refusal.FEATURES, "version 0"),
    "another prompt": (lambda: prompt_with(digest="0" * 64), Refusal.FEATURES, "another prompt"),
    "fewer examples than it says": (lambda: prompt_with(examples=1), Refusal.FEATURES, "another"),
    "another frame than it says": (lambda: prompt_with(frame="plain"), Refusal.FEATURES, "another"),
    "an unknown frame": (lambda: prompt_with(frame="xml"), Refusal.MANIFEST, "plain, chatml"),
    "another language": (lambda: prompt_with(language_version=9), Refusal.LANGUAGE, "language 9"),
    "a truthy number": (lambda: prompt_with(rounds=True), Refusal.MANIFEST, "exactly"),
    "an unknown field": (lambda: prompt_with(temperature=1), Refusal.MANIFEST, "exactly"),
    "a missing field": (lambda: without("rounds"), Refusal.MANIFEST, "exactly"),
    "no JSON": (lambda: with_file(PROMPT, b"{"), Refusal.MANIFEST, "exactly"),
    "a list": (lambda: with_file(PROMPT, b"[]"), Refusal.MANIFEST, "exactly"),
    "two ids swapped": (
        lambda: with_file(TOKENIZER, other_tokenizer()), Refusal.ENCODER, "another tokenizer"
    ),
    "no tokenizer": (lambda: with_file(TOKENIZER, b"{}"), Refusal.ENCODER, "tokenizer.json"),
    "tables cut": (
        lambda: with_file(TABLES, files()[TABLES][:-1]), Refusal.LANGUAGE, "compile the tables"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused_with_a_word_on_what_to_do(name: str) -> None:
    make, reason, words = WRONG[name]
    with pytest.raises(BundleError, match=words) as caught:
        read_parts(make().__getitem__)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)


def test_another_end_token_than_the_tables_have_is_refused() -> None:
    document = json.loads(tokenizer_json())
    for token in document["added_tokens"]:
        token["special"] = token["content"] != END
    data = json.dumps(document).encode()
    read_parts(with_file(TOKENIZER, data).__getitem__)  # still the end token
    for token in document["added_tokens"]:
        token["special"] = False
    with pytest.raises(BundleError, match="another tokenizer"):
        read_parts(with_file(TOKENIZER, json.dumps(document).encode()).__getitem__)


# -- runners ----------------------------------------------------------------------------------


def offer(monkeypatch: pytest.MonkeyPatch, *targets: str) -> None:
    points = [EntryPoint("torch", target, "conductor.runners") for target in targets]
    monkeypatch.setattr(lm_runner, "entry_points", lambda group: EntryPoints(points))


def test_a_runner_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, "support.lmbundles:FakeRunner")
    assert find_runner().__name__ == "FakeRunner"


def test_a_runner_that_is_unknown_ambiguous_or_lacks_something_stops_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch)
    with pytest.raises(StartError, match="'torch' of language models is not installed"):
        find_runner()
    offer(monkeypatch, "support.lmbundles:FakeRunner", "support.lmbundles:engine")
    with pytest.raises(StartError, match="more than one"):
        find_runner()
    offer(monkeypatch, "no_torch_here:load")
    with pytest.raises(StartError, match=r"needs no_torch_here: install conductor-appliance\[lm\]"):
        find_runner()


@pytest.mark.parametrize(
    "wrong",
    [{"device": "tpu"}, {"dtype": "int4"}, {"threads": 0}, {"max_running": 0}, {"max_waiting": -1}],
)
def test_runner_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(StartError, match=next(iter(wrong))):
        RunnerSettings(**wrong)  # type: ignore[arg-type]


def test_the_engine_lm_asks_for_a_bundle_and_for_who_may_sign_it(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"planner\.bundle"):
        load_engine(PlannerConfig("lm"), tmp_path)
