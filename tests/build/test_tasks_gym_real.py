"""The real reasoning-gym, where it is installed: its verifiers accept their own answers."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from conductor_build.tasks.calibration import GENERATORS, calibration
from conductor_build.tasks.gym import Verifier, gym_tasks

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="not installed")


@pytest.fixture(scope="module")
def verifier():
    verifier = Verifier()
    yield verifier
    verifier.close()


def test_every_generator_of_the_calibration_knows_its_own_answers_from_others(verifier):
    import reasoning_gym

    for name, task in gym_tasks(GENERATORS[::3], size=4, seed=5, verifier=verifier):
        gold = reasoning_gym.create_dataset(name, size=4, seed=5)[2]["answer"]
        assert task.score(task[2], gold) == 1, name
        assert task.score(task[2], f"Let me think.\n\nThe answer is {gold}") == 1, name
        assert task.score(task[2], "no idea") == 0, name


def test_the_calibration_is_the_same_for_the_same_seed(verifier):
    one, same, other = (calibration(2, seed, verifier) for seed in (1, 1, 2))
    questions = [
        [task[place].question for place in range(len(task))] for task in (one, same, other)
    ]
    assert questions[0] == questions[1] != questions[2]
    assert {one.domain(one[place]) for place in range(len(one))} == {"math", "general", "code"}
