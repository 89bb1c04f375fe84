"""What `accelerate launch` makes of the configurations that ship, as far as shows without GPUs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import yaml

FOLDER = Path("configs/recipes/accelerate")
CASES = {
    "one-gpu": (1, 1, False),
    "two-gpus-fsdp": (2, 1, True),
    "eight-gpus-fsdp": (8, 1, True),
    "multi-node": (16, 2, True),
}
"""Processes, machines, whether weights are sharded."""


def launched(name: str, *more: str) -> Namespace:
    """The launcher's arguments after it has read a configuration."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    asked = ["--config_file", str(FOLDER / f"{name}.yaml"), *more, "-m", "conductor_build.cli"]
    args = launch_command_parser().parse_args(asked)
    found: Namespace = _validate_launch_command(args)[0]
    return found


def test_every_configuration_is_of_a_known_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.yaml")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_configuration_says_what_its_name_says(name: str) -> None:
    processes, machines, sharded = CASES[name]
    args = launched(name, "--main_process_ip", "192.0.2.1")
    assert (args.num_processes, args.num_machines) == (processes, machines)
    assert bool(args.use_fsdp) == sharded
    assert args.mixed_precision == "bf16"
    assert not args.use_cpu


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case[2]])
def test_fsdp_is_set_up_as_the_comments_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin
    from accelerate.utils.launch import prepare_multi_gpu_env

    args = launched(name, "--main_process_ip", "192.0.2.1", "--main_process_port", "0")
    for key, value in prepare_multi_gpu_env(args).items():
        monkeypatch.setenv(key, value)
    plugin = FullyShardedDataParallelPlugin()
    assert plugin.fsdp_version == 2
    assert plugin.reshard_after_forward is True
    assert plugin.activation_checkpointing
    offloaded = type(plugin.cpu_offload).__name__ == "CPUOffloadPolicy"
    assert offloaded == (name == "two-gpus-fsdp")
    assert plugin.state_dict_type.name == "FULL_STATE_DICT"


def test_several_machines_need_to_be_told_where_the_first_is() -> None:
    assert launched("multi-node").main_process_ip is None
    assert launched("multi-node", "--main_process_ip", "192.0.2.1").main_process_ip == "192.0.2.1"


@pytest.mark.parametrize("name", CASES)
def test_the_command_in_a_configurations_comment_names_the_configuration(name: str) -> None:
    text = (FOLDER / f"{name}.yaml").read_text()
    assert f"accelerate launch --config_file configs/recipes/accelerate/{name}.yaml" in text
    assert yaml.safe_load(text)["machine_rank"] == 0
