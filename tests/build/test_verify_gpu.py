"""A box looks at itself: every feature is told of, one failure does not hide the next."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from conductor.planner.lm_runner import Token
from conductor.planner.manifest import PromptId
from conductor_build.cli import conductor_build
from conductor_build.verify import features, installed, kernels, machine, plans
from conductor_build.verify.finding import Finding, Machine, State, passed
from conductor_kernels.checks import Case
from support import bundles
from support.lmbundles import files

CPU = Machine("cpu")
NO_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def states(found: Iterator[Finding]) -> list[State]:
    return [one.state for one in found]


# -- the command ------------------------------------------------------------------------------


@NO_GPU
def test_without_a_gpu_nothing_passes_for_what_needs_one() -> None:
    done = CliRunner().invoke(conductor_build, ["verify", "--gpu", "--json"])
    assert done.exit_code == 2
    said = json.loads(done.output)
    assert said["ok"] is False
    state = {one["feature"]: one["state"] for one in said["findings"]}
    for feature in ("architecture", "ops against float64", "CUDA graph", "plan", "cubins"):
        assert state[feature] == "not here"


@NO_GPU
def test_people_are_told_line_by_line() -> None:
    done = CliRunner().invoke(conductor_build, ["verify", "--gpu"])
    lines = done.output.splitlines()
    assert len(lines) == len(features.FEATURES)
    assert all(line.startswith(("PASS", "FAIL", "NOT HERE")) for line in lines)


def test_it_has_to_be_said_that_the_gpu_is_meant() -> None:
    done = CliRunner().invoke(conductor_build, ["verify"])
    assert done.exit_code == 2 and "--gpu" in done.output


# -- findings ---------------------------------------------------------------------------------


def test_a_feature_that_raises_has_failed_and_the_next_is_looked_at() -> None:
    def broken(_at: Machine) -> Iterator[Finding]:
        raise RuntimeError("CUDA error: an illegal memory access\nmore")

    def fine(_at: Machine) -> Iterator[Finding]:
        yield passed("fine", "")

    found = list(features.look(CPU, (("broken", broken), ("fine", fine))))
    assert [one.state for one in found] == [State.FAIL, State.PASS]
    assert found[0].said == "RuntimeError: CUDA error: an illegal memory access"
    assert features.exit_code(found, CPU) == 1
    assert features.exit_code(found[1:], CPU) == 0


@NO_GPU
def test_a_box_without_a_gpu_is_told_apart_from_one_that_passes() -> None:
    assert features.exit_code([passed("torch", "")], Machine()) == 2


def test_an_op_beyond_its_bound_fails_with_the_case_that_did() -> None:
    cases = [
        Case("linear", "int4", torch.float32, 1.0, lambda device, seed: 0.5),
        Case("linear", "fp8", torch.float32, 1.0, lambda device, seed: 2.0),
        Case("norm", "plain", torch.float32, 1.0, lambda device, seed: 0.5),
    ]
    bad, good = kernels.judged(iter(cases), torch.device("cpu"), 0)
    assert (bad.feature, bad.state) == ("linear", State.FAIL)
    assert bad.said == "1 of 2 cases, first fp8: 2 where 1 is allowed"
    assert (good.state, good.said) == (State.PASS, "1 cases, at most 50% of what is allowed")


def asked(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    def run(*_: Any, **__: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess([], 0, answer, "")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("NVIDIA H200, 580.159.04\n", State.PASS),
        (FileNotFoundError(), State.NOT_HERE),
        (subprocess.TimeoutExpired("nvidia-smi", 20), State.FAIL),
        (subprocess.CalledProcessError(9, "nvidia-smi"), State.FAIL),
    ],
)
def test_a_driver_that_does_not_answer_is_not_one_that_is_missing(
    monkeypatch: pytest.MonkeyPatch, answer: Any, state: State
) -> None:
    asked(monkeypatch, answer)
    assert states(machine.driver(CPU)) == [state]


@pytest.mark.parametrize(
    ("capability", "state"),
    [((9, 0), State.PASS), ((8, 7), State.PASS), ((7, 5), State.FAIL), (None, State.NOT_HERE)],
)
def test_an_architecture_passes_that_compiled_kernels_run_on(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None, state: State
) -> None:
    monkeypatch.setattr(Machine, "capability", capability)
    assert states(machine.architecture(Machine())) == [state]


def test_compiled_kernels_are_looked_for_in_a_bundle_that_is_signed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert states(installed.cubins(CPU)) == [State.NOT_HERE]
    key = tmp_path / "site.pub"
    (public,) = bundles.TRUSTED
    key.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    about = {"kind": "lm", "features": None, "encoder": None, "prompt": PromptId(1, "ab" * 32),
             "precision": "float32"}  # fmt: skip
    plain = files() | {"lm/config.json": b"{}", "lm/model.safetensors": b"weights"}
    named = replace(CPU, bundle=bundles.write(tmp_path / "plain", plain, **about), keys=(key,))
    (told,) = installed.cubins(named)
    assert told.state is State.NOT_HERE and "conductor-build compile" in told.said
    monkeypatch.setattr(Machine, "capability", (9, 0))
    path = bundles.write(tmp_path / "b", plain | {"triton/sm_80/kernels.json": b"{}"}, **about)
    (told,) = installed.cubins(replace(named, bundle=path))
    assert told.state is State.FAIL, "there is no driver, or it is for another GPU"


def test_machine_code_that_nobody_vouches_for_is_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Machine, "capability", (9, 0))
    monkeypatch.setattr("conductor_kernels.launch.use_bundle", lambda folder: pytest.fail("run"))
    (tmp_path / "triton" / "sm_90").mkdir(parents=True)
    (told,) = installed.cubins(replace(CPU, bundle=tmp_path))
    assert told.state is State.FAIL and "trusted" in told.said


def test_tensorrt_llm_is_not_here_where_it_is_not_installed() -> None:
    assert states(installed.tensorrt_llm(CPU)) == [State.NOT_HERE]


# -- plans ------------------------------------------------------------------------------------

WRITTEN = [[Token(65, -1.0, False), Token(66, 0.0, True)]]


@pytest.mark.parametrize(
    ("theirs", "said"),
    [
        ([[Token(65, -1.0, False), Token(67, 0.0, True)]], "differs from the CPU's at token 1"),
        ([[Token(65, -1.1, False), Token(66, 0.0, True)]], "another log-probability at token 0"),
        ([[Token(65, -1.0, False)]], "has 2 tokens, the CPU's 1"),
    ],
)
def test_the_first_difference_of_plans_is_told(theirs: list[list[Token]], said: str) -> None:
    found = plans.compared(WRITTEN, theirs)
    assert found.state is State.FAIL and said in found.said
    assert plans.compared(WRITTEN, WRITTEN).state is State.PASS


def test_plans_by_launches_are_those_that_the_host_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_PLANS", 2)
    monkeypatch.setattr(plans, "_TOKENS", 12)
    (found,) = plans.plan(CPU)
    assert (found.state, found.said) == (State.PASS, "2 plans, 24 tokens, as the CPU writes them")
