"""The pocket conductor in the planner process: whatever the network says, the plan is valid."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.cli import up
from conductor.core import Candidate, Card, Heard, PlanRequest, Price
from conductor.errors import BundleError, ConfigError, PlanError, StartError
from conductor.plan.language import show
from conductor.planner import facts as factsfile
from conductor.planner import graph, wire
from conductor.planner.encoder import WIDTH
from conductor.planner.encoderfiles import default_encoder
from conductor.planner.facts import Domain, Facts
from conductor.planner.features import FEATURES, State
from conductor.planner.greedy import Kind
from conductor.planner.lexical import FEATURES as LEXICAL
from conductor.planner.pocket import MOST_SEEN, PocketEngine, Remembered
from conductor.planner.server import load_engine
from conductor.process import keyfiles
from conductor.settings import PlannerConfig
from conductor.workers.catalogue import load_catalogue
from support import bundles
from support.configs import small_site, write_site
from support.planner import ROOT, planner_process, socket_folder
from support.plans import candidate, heard, request
from support.processes import command, environment

MODELS = Path(os.environ.get("CONDUCTOR_MODELS_DIR", ROOT / "var" / "models"))
FACTS = Facts(
    sentence=WIDTH,
    lexical=LEXICAL,
    domains=(Domain("gsm", "math", 200.0, 0.8), Domain("other", "general", 300.0, 0.6)),
    cost_weights=(0.003, 2.0),
    max_calls=6,
    max_rounds=5,
)


def embed(text: str) -> np.ndarray:
    vector = np.ones(WIDTH, np.float32)
    vector[len(text) % WIDTH] = 9
    return vector / np.linalg.norm(vector)


def seen(state: State, scores: np.ndarray) -> graph.Seen:
    """What a network would say, with given scores: right by card, price by cost."""
    domain = np.full(state.skill.shape[1], 1 / state.skill.shape[1], np.float32)
    return graph.Seen(
        scores.astype(np.float32),
        state.skill @ domain,
        np.where(state.answer >= 0, state.skill @ domain, 0).astype(np.float32),
        state.weight * (state.cost @ domain),
        domain,
        np.zeros(5, np.float32),
    )


class Scripted:
    """A network that wants, one step after the other, a kind of choice for a row."""

    def __init__(self, *wishes: tuple[Kind, int]) -> None:
        self.wishes = list(wishes)
        self.states: list[State] = []

    def __call__(self, state: State) -> graph.Seen:
        self.states.append(state)
        scores = np.zeros((4, len(state.present)))
        if self.wishes:
            scores[self.wishes.pop(0)] = 10.0
        return seen(state, scores.ravel())


def engine(*wishes: tuple[Kind, int]) -> PocketEngine:
    return PocketEngine(Scripted(*wishes), FACTS, embed)


def plan(asked: PlanRequest, *wishes: tuple[Kind, int]):
    return wire.check(engine(*wishes).plan_now(asked), asked)


POOL = request(candidate(math=0.9), candidate(math=0.8, price=0.1), candidate(math=0.3, price=0.0))
LATER = replace(POOL, rounds_left=2)


# -- from choices to plans --------------------------------------------------------------------


def test_asking_two_and_looking_is_one_plan_of_two_lines():
    planned = plan(LATER, (Kind.MORE, 2), (Kind.LOOK, 1))
    assert show(planned.plan) == "2 q -\n1 q -\n"
    assert planned.look and planned.engine == "pocket"
    assert planned.alternates == (0,)


def test_taking_the_last_answer_needs_no_look():
    planned = plan(LATER, (Kind.LAST, 1))
    assert show(planned.plan) == "1 q -\n" and not planned.look
    assert planned.alternates == (0, 2)


def test_keeping_the_answer_that_stands_is_an_empty_plan():
    asked = replace(LATER, heard=heard("5", "6"))
    kept = plan(asked, (Kind.KEEP, 1))
    assert show(kept.plan) == "" and not kept.look and kept.alternates == ()


def test_keeping_an_earlier_answer_is_a_vote_over_its_step():
    asked = replace(LATER, heard=heard("5", "6"))
    assert show(plan(asked, (Kind.KEEP, 0)).plan) == "vote 0 -\n"


def test_of_answers_that_agree_the_one_that_stands_is_kept():
    asked = replace(LATER, heard=heard("5", "6", "The answer is 5."))
    assert show(plan(asked, (Kind.KEEP, 0)).plan) == ""


def test_an_answer_of_a_failed_step_is_never_kept():
    asked = replace(LATER, heard=heard("5", ""))
    planned = plan(asked, (Kind.KEEP, 1))
    assert show(planned.plan) != "vote 1 -\n"


def test_a_worker_that_gave_nothing_is_neither_asked_again_nor_taken_for_wrong():
    network = Scripted((Kind.LOOK, 1))
    asked = replace(LATER, heard=heard("", "42", workers=(0, 2)))
    PocketEngine(network, FACTS, embed).plan_now(asked)
    state = network.states[0]
    assert state.present.tolist() == [False, True, True]
    assert state.asked.tolist() == [False, False, True]


def test_in_the_last_round_nothing_is_looked_at():
    planned = plan(POOL, (Kind.LOOK, 1))
    assert not planned.look and len(planned.plan.steps) == 1


def test_a_request_for_one_step_gets_one_without_a_look():
    asked = replace(LATER, one_step=True)
    planned = plan(asked, (Kind.MORE, 0), (Kind.LOOK, 1))
    assert len(planned.plan.steps) == 1 and not planned.look


def test_the_network_is_told_of_pending_lines_and_what_they_leave():
    network = Scripted((Kind.MORE, 2), (Kind.MORE, 0), (Kind.LOOK, 1))
    PocketEngine(network, FACTS, embed).plan_now(replace(LATER, calls_left=4))
    first, second, third = network.states
    assert not first.pending.any() and second.pending.tolist() == [False, False, True]
    assert third.pending.tolist() == [True, False, True]
    assert [int(one.calls_left) for one in network.states] == [4, 3, 2]
    assert [int(one.steps_left) for one in network.states] == [5, 4, 3]


def test_lambda_rounds_and_calls_stay_within_what_was_trained():
    network = Scripted()
    asked = replace(POOL, cost_weight=1000.0, rounds_left=9, calls_left=100)
    PocketEngine(network, FACTS, embed).plan_now(asked)
    state = network.states[0]
    assert (float(state.weight), int(state.rounds_left), int(state.calls_left)) == (2.0, 4, 6)
    free = Scripted()
    PocketEngine(free, FACTS, embed).plan_now(replace(POOL, cost_weight=0.0))
    assert float(free.states[0].weight) == pytest.approx(0.003)


# -- who may be asked -------------------------------------------------------------------------


def test_who_cannot_hold_the_conversation_is_asked_only_when_nobody_can():
    asked = replace(request(candidate(context=500), candidate(context=9000)), prompt_tokens=1000)
    assert show(plan(asked, (Kind.LAST, 0)).plan) == "1 q -\n"
    assert plan(asked, (Kind.LAST, 0)).alternates == ()
    asked = replace(asked, prompt_tokens=20_000)
    assert show(plan(asked, (Kind.LAST, 0)).plan) == "0 q -\n"


def test_when_all_who_have_room_gave_nothing_the_others_are_asked():
    pool = request(candidate(context=500), candidate(context=9000))
    asked = replace(pool, prompt_tokens=1000, heard=heard("", workers=(1,)))
    assert show(plan(asked).plan) == "0 q -\n"


def test_when_everybody_gave_nothing_all_are_asked_again():
    asked = replace(LATER, heard=heard("", "", ""))
    assert show(plan(asked, (Kind.LAST, 1)).plan) == "1 q -\n"


def test_nobody_and_no_call_left_are_no_plan_unless_an_answer_stands():
    with pytest.raises(PlanError):
        plan(replace(POOL, candidates=()))
    with pytest.raises(PlanError):
        plan(replace(POOL, calls_left=0))
    kept = plan(replace(POOL, candidates=(), heard=heard("5", workers=(None,))))
    assert show(kept.plan) == ""
    assert show(plan(replace(POOL, calls_left=0, heard=heard("5"))).plan) == ""


def test_an_answer_of_somebody_who_may_not_be_asked_any_more_still_stands():
    asked = replace(POOL, calls_left=0, heard=heard("5", workers=(None,)))
    assert show(plan(asked).plan) == ""


def test_a_pool_of_one_is_asked():
    planned = plan(request(candidate()), (Kind.MORE, 0))
    assert show(planned.plan) == "0 q -\n" and planned.alternates == ()


def test_a_card_without_any_skill_is_taken_for_average():
    network = Scripted()
    bare = Candidate(Card({}, 1.0, "declared"), Price(), True, 8192)
    PocketEngine(network, FACTS, embed).plan_now(request(bare, candidate()))
    assert network.states[0].skill[0] == pytest.approx([0.8, 0.6])


def test_of_a_large_pool_the_network_sees_some_and_all_are_told_of():
    network = Scripted((Kind.LAST, 1))
    pool = [candidate(general=0.3)] * 100 + [candidate(general=0.9)] + [candidate()] * 155
    asked = request(*pool)
    planned = wire.check(PocketEngine(network, FACTS, embed).plan_now(asked), asked)
    assert len(network.states[0].present) == MOST_SEEN
    assert planned.insight is not None and len(planned.insight.right) == 256
    assert show(planned.plan) == "101 q -\n" and planned.alternates[0] == 100
    assert len(wire.encode_planned(planned)) <= wire.MAX_REPLY_BYTES


def test_the_longest_question_and_the_largest_numbers_of_the_wire_are_planned():
    dear = Candidate(Card({}, 1e12, "declared", 100.0), Price(1e12, 1e12), False, 2**53)
    asked = request(dear, dear, question="x" * 200_000)
    asked = wire.decode_request(wire.encode_request(wire.bounded(asked)))
    asked = replace(asked, prompt_tokens=2**52)
    planned = plan(asked, (Kind.LAST, 1))
    wire.check(wire.decode_planned(wire.encode_planned(planned)), asked)


# -- what it tells ----------------------------------------------------------------------------


def test_insight_says_whom_it_meant_and_what_that_costs():
    planned = plan(LATER, (Kind.MORE, 2), (Kind.LOOK, 1))
    told = planned.insight
    assert told is not None
    assert told.right == pytest.approx((0.85, 0.7, 0.45), abs=0.2)
    assert sum(told.chosen) == pytest.approx(1.0) and told.chosen[2] > 0.99
    assert told.accept == 0
    # worker 1 alone costs: 0.1 USD per million tokens, 250 tokens on average, and the prompt
    assert told.expected_cost_usd == pytest.approx(0.1 * (250 + LATER.prompt_tokens) / 1e6)


def test_insight_of_a_later_round_says_how_sure_it_is_of_what_stands():
    kept = plan(replace(LATER, heard=heard("5")), (Kind.KEEP, 0))
    assert kept.insight is not None
    assert kept.insight.accept > 0.99 and kept.insight.expected_cost_usd == 0
    assert kept.insight.expected_quality == kept.insight.right[0]


def test_numbers_out_of_range_are_told_within_range():
    class Wild(Scripted):
        def __call__(self, state: State) -> graph.Seen:
            told = super().__call__(state)
            return told._replace(right=told.right * 0 + 7, accepted=told.accepted * 0 - 3)

    asked = replace(LATER, heard=heard("5"))
    planned = PocketEngine(Wild(), FACTS, embed).plan_now(asked)
    wire.decode_planned(wire.encode_planned(planned), 1)


def test_a_question_is_encoded_once_over_the_rounds():
    texts: list[str] = []
    remembered = Remembered(lambda text: texts.append(text) or embed(text))
    for _ in range(3):
        for number in range(200):
            remembered(str(number))
    assert len(texts) == 200
    for number in range(300):
        remembered(f"other {number}")
    remembered("0")
    assert texts.count("0") == 2, "it does not grow without end"


# -- any network ------------------------------------------------------------------------------

answers = st.sampled_from(["", "5", "6", "The answer is 5.", "!!!", "Cats sleep by day. " * 5])
numbers = st.floats(-1e9, 1e9, width=32)


@st.composite
def requests(draw: st.DrawFn) -> PlanRequest:
    count = draw(st.integers(1, 20))
    pool = tuple(
        candidate(
            price=draw(st.sampled_from([0.0, 0.5, 1e12])),
            context=draw(st.sampled_from([0, 500, 100_000])),
            general=draw(st.floats(0, 1)),
        )
        for _ in range(count)
    )
    said = tuple(
        Heard(step, draw(st.none() | st.integers(0, count - 1)), draw(answers), 1)
        for step in range(draw(st.integers(0, 9)))
    )
    one_step = not said and draw(st.booleans())
    return PlanRequest(
        "r", "How many?", pool, draw(st.sampled_from([3, 1000, 10**9])),
        max_steps=draw(st.integers(1, 5)), one_step=one_step,
        cost_weight=draw(st.sampled_from([0.0, 0.03, 1e3])), heard=said,
        rounds_left=draw(st.integers(0, 4)), calls_left=draw(st.integers(0, 9)),
    )  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(requests(), st.integers(0, 2**32 - 1), st.sampled_from([1e-3, 1.0, 1e9]))
def test_whatever_the_network_says_the_plan_is_valid(asked, seed, scale):
    rng = np.random.default_rng(seed)

    def network(state: State) -> graph.Seen:
        scores = rng.normal(size=4 * len(state.present)) * scale
        scores[rng.random(len(scores)) < 0.5] = -1e9
        return seen(state, scores)

    stands = any(one.answer for one in asked.heard)
    try:
        planned = PocketEngine(network, FACTS, embed).plan_now(asked)
    except PlanError:
        assert asked.calls_left == 0 and not stands
        return
    wire.check(planned, asked)
    first = len(asked.heard)
    wire.check(wire.decode_planned(wire.encode_planned(planned), first), asked)
    kept = [n for step in planned.plan.steps if step.access.steps for n in step.access.steps]
    assert all(asked.heard[step].answer for step in kept)
    asks = [step.worker for step in planned.plan.steps if isinstance(step.worker, int)]
    assert len(set(asks)) == len(asks) and not set(asks) & set(planned.alternates)
    assert asks or stands


def test_a_network_that_gives_no_numbers_is_a_failure_of_the_engine():
    class Session:
        def run(self, names: None, feed: dict[str, np.ndarray]) -> list[np.ndarray]:
            one = np.full((1, 4), np.nan, np.float32)
            return [one] * len(graph.Seen._fields)

    broken = PocketEngine(graph.Graph(Session()), FACTS, embed)
    with pytest.raises(ArithmeticError):
        broken.plan_now(request(candidate()))
    with pytest.raises(StartError, match="does not work here"):
        broken.try_once()


# -- a real network ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported() -> dict[str, bytes]:
    pytest.importorskip("torch")
    from conductor_build.pocket.export import export
    from support.pocket import perturbed

    return export(perturbed(5, FACTS), FACTS)


@pytest.fixture(scope="module")
def chooser(exported) -> PocketEngine:
    return PocketEngine(graph.Graph.load(exported[graph.FILE]), FACTS, embed)


@settings(max_examples=60, deadline=None)
@given(requests(), st.integers(0, 2**32 - 1))
def test_permuting_candidates_permutes_the_choice_and_changes_nothing_else(chooser, asked, seed):
    shuffle = random.Random(seed)
    pool = tuple(  # no two of them alike, and no price in which everything else is lost
        candidate(price=shuffle.random() * 9, context=one.context_tokens, math=shuffle.random())
        for one in asked.candidates[:MOST_SEEN]
    )
    asked = replace(asked, prompt_tokens=min(asked.prompt_tokens, 1000))
    said = tuple(
        one if one.worker is None or one.worker < len(pool) else replace(one, worker=None)
        for one in asked.heard
    )
    asked = replace(asked, candidates=pool, heard=said)
    order = list(range(len(pool)))
    shuffle.shuffle(order)  # place in the new pool -> ordinal in the old one
    back = {old: new for new, old in enumerate(order)}
    moved = replace(
        asked,
        candidates=tuple(pool[old] for old in order),
        heard=tuple(
            replace(one, worker=None if one.worker is None else back[one.worker]) for one in said
        ),
    )
    try:
        before = chooser.plan_now(asked)
    except PlanError:
        with pytest.raises(PlanError):
            chooser.plan_now(moved)
        return
    after = chooser.plan_now(moved)
    renamed = tuple(
        step if not isinstance(step.worker, int) else replace(step, worker=order[step.worker])
        for step in after.plan.steps
    )
    assert (renamed, after.look) == (before.plan.steps, before.look)
    assert tuple(order[one] for one in after.alternates) == before.alternates
    told, shown = before.insight, after.insight
    assert (told is None) == (shown is None)
    if told and shown:
        assert [shown.right[back[one]] for one in range(len(pool))] == pytest.approx(
            told.right, abs=1e-4
        )


# -- loading ----------------------------------------------------------------------------------


def site_bundle(folder: Path, files: dict[str, bytes], **changes: object) -> tuple[Path, Path]:
    """A bundle signed by the site, and the site's public key."""
    secret, public = folder / "site.key", folder / "site.pub"
    keyfiles.generate(secret, public, "bundle")
    whole = {"pocket/seen.bin": b"", **files}
    encoder = default_encoder(load_catalogue())
    out = folder / "bundle"
    manifest = bundles.manifest(whole, **{"encoder": encoder, "features": FEATURES, **changes})
    bundles.write(out, whole)
    bundles.put_signed(out, bundles.encode(manifest), keyfiles.load_private(secret, "bundle"))
    return out, public


@pytest.mark.model
def test_a_signed_bundle_is_loaded_and_plans(exported, tmp_path):
    bundle, key = site_bundle(tmp_path, exported)
    loaded = load_engine(PlannerConfig("pocket", bundle, (key,)), MODELS)
    asked = replace(LATER, question="What is 7 times 8?")
    planned = asyncio.run(loaded.plan(asked))
    wire.check(planned, asked)
    assert planned == asyncio.run(loaded.plan(asked)), "the same request gets the same plan"


@pytest.mark.parametrize(
    ("files", "changes", "error", "words"),
    [
        ({graph.FILE: b"junk"}, {}, StartError, "network cannot be loaded"),
        ({factsfile.FILE: b"{}"}, {}, BundleError, "facts.json cannot be used"),
        ({}, {"features": FEATURES + 1}, BundleError, "trained on features"),
        ({}, {"encoder": bundles.ENCODER}, BundleError, "encoder"),
        ({}, {"plan_language": 99}, BundleError, "plan language"),
        (
            {factsfile.FILE: factsfile.encode(replace(FACTS, lexical=LEXICAL[:-1]))},
            {},
            BundleError,
            "other features",
        ),
    ],
)
def test_a_bundle_that_does_not_fit_is_refused_in_one_line(
    exported, tmp_path, files, changes, error, words
):
    bundle, key = site_bundle(tmp_path, {**exported, **files}, **changes)
    with pytest.raises(error, match=words) as caught:
        load_engine(PlannerConfig("pocket", bundle, (key,)), MODELS)
    assert "\n" not in str(caught.value)


@pytest.mark.model
def test_a_network_of_another_size_is_found_at_start(exported, tmp_path):
    fewer = factsfile.encode(replace(FACTS, domains=FACTS.domains[:1]))
    bundle, key = site_bundle(tmp_path, {**exported, factsfile.FILE: fewer})
    with pytest.raises(StartError, match="does not work here"):
        load_engine(PlannerConfig("pocket", bundle, (key,)), MODELS)


def test_a_bundle_at_a_path_counts_only_with_a_key_that_is_named(exported, tmp_path):
    bundle, _ = site_bundle(tmp_path, exported)
    other = tmp_path / "other.pub"
    keyfiles.generate(tmp_path / "other.key", other, "bundle")
    with pytest.raises(BundleError, match="not trusted here"):
        load_engine(PlannerConfig("pocket", bundle, (other,)), MODELS)
    with pytest.raises(BundleError, match="who may sign"):
        load_engine(PlannerConfig("pocket", bundle), MODELS)
    with pytest.raises(ConfigError):
        load_engine(PlannerConfig("pocket", bundle, (tmp_path / "none.pub",)), MODELS)


def test_missing_encoder_files_are_told_with_the_command_that_brings_them(exported, tmp_path):
    bundle, key = site_bundle(tmp_path, exported)
    with pytest.raises(StartError, match="conductor models pull minilm-l6"):
        load_engine(PlannerConfig("pocket", bundle, (key,)), tmp_path / "models")


@pytest.mark.model
async def test_the_planner_process_serves_it(exported, tmp_path):
    from conductor.planner.client import PlannerClient
    from conductor.planner.default import DefaultEngine

    bundle, key = site_bundle(tmp_path, exported)
    with socket_folder() as folder:
        socket = folder / "p.sock"
        async with planner_process(socket, "pocket", str(bundle), str(key), str(MODELS)):
            client = PlannerClient(socket, 10.0, DefaultEngine())
            await client.start()
            try:
                planned = await client.plan(replace(LATER, question="What is 7 times 8?"))
            finally:
                await client.close()
    assert (planned.engine, planned.where, planned.why) == ("pocket", "planner", None)
    assert planned.insight is not None


def told_by(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), env=environment(), capture_output=True, text=True, check=False, timeout=60
    )


def test_a_process_that_cannot_load_it_ends_at_once_with_one_line(exported, tmp_path):
    bundle, key = site_bundle(tmp_path, exported)
    (bundle / "pocket" / "seen.bin").write_bytes(b"tampered")
    planner = {"engine": "pocket", "bundle": str(bundle), "trusted_keys": [str(key)]}
    write_site(tmp_path, appliance={"planner": planner})
    done = told_by("planner", "--config", str(tmp_path), "--socket", str(tmp_path / "p.sock"))
    assert done.returncode == 1 and not (tmp_path / "p.sock").exists()
    assert done.stderr.count("\n") == 1 and "pocket/seen.bin" in done.stderr


def test_missing_encoder_files_are_told_by_check_and_before_anything_starts(tmp_path, capsys):
    site = small_site(tmp_path, appliance={"planner": {"engine": "pocket"}})
    assert up._planner(site, tmp_path) == []
    assert "run 'conductor models pull minilm-l6'" in capsys.readouterr().out
    done = told_by("check", "--config", str(tmp_path))
    assert done.returncode == 0, "a file that is missing is no fault of the configuration"
    assert "run 'conductor models pull minilm-l6'" in done.stdout
    asked = told_by("check", "--config", str(tmp_path), "--json")
    assert orjson.loads(asked.stdout)["missing_models"] == ["minilm-l6"]


def test_the_written_down_rule_needs_no_files(tmp_path):
    site = small_site(tmp_path)
    assert len(up._planner(site, tmp_path)) == 1
