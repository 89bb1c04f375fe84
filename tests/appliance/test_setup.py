"""`conductor setup`: whatever is answered, the configuration loads, and nothing is lost."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from conductor.activation.testing import tried
from conductor.api.keys import KeyRing
from conductor.box.airgap import read_marker
from conductor.box.command import Ran, nothing_runs
from conductor.cli.setup import setup
from conductor.cli.setupanswers import (
    Answers,
    Listen,
    LocalModel,
    Vendor,
    range_problem,
    read_answers,
)
from conductor.cli.setupfiles import LISTENER_MARK
from conductor.cli.setupwrite import set_up
from conductor.config import load
from conductor.errors import ConfigError, StartError
from conductor.secretrefs import resolve
from support.installed import install, tree

VENDOR = Vendor("frontier", "openai", "gpt-x", base_url="https://llm.example.com/v1")
MODELS = (LocalModel("big", "/run/vllm/api.sock", "big-32b"),)
EVERY = [
    Answers(),
    Answers(workers=MODELS, embedded=False),
    Answers(listen=Listen(8443, ("192.0.2.0/24", "2001:db8::/32"))),
    Answers(away="vendor", vendor=VENDOR),
    Answers(away="vendor", vendor=VENDOR, workers=MODELS, names=True),
    Answers(away="air-gapped", names=True),
    Answers(gpu=True),
]


@pytest.mark.parametrize("answers", EVERY)
def test_what_is_written_loads_as_it_was_answered(tmp_path: Path, answers: Answers) -> None:
    place = install(tmp_path)
    set_up(place, answers, nothing_runs, force=False)
    site = load(place.config)
    expected = ["smollm2-135m"] * answers.embedded + [one.id for one in answers.workers]
    assert [w.id for w in site.workers] == expected + ["frontier"] * (answers.vendor is not None)
    assert site.appliance.mode == ("connected" if answers.vendor else "local-only")
    assert site.policy.profile.names is answers.names
    assert site.declared.air_gapped is (answers.away == "air-gapped")


@pytest.mark.parametrize("answers", [one for one in EVERY if not one.names])
def test_the_policy_passes_its_own_tests(tmp_path: Path, answers: Answers) -> None:
    place = install(tmp_path)
    set_up(place, answers, nothing_runs, force=False)
    results = tried(load(place.config))
    assert results and [one for one in results if not one.passed] == []


def test_the_key_is_shown_once_and_only_its_hash_is_kept(tmp_path: Path) -> None:
    place = install(tmp_path)
    done = set_up(place, Answers(), nothing_runs, force=False)
    assert done.key not in "".join(tree(tmp_path).values())
    ring = KeyRing(load(place.config).appliance.keys, resolve)
    assert ring.principal(f"Bearer {done.key}").id == "app"
    assert (
        hashlib.sha256(done.key.encode()).hexdigest()
        in tree(tmp_path)["etc/conductor/appliance.yaml"]
    )


def test_the_key_of_the_template_opens_nothing(tmp_path: Path) -> None:
    place = install(tmp_path)
    set_up(place, Answers(), nothing_runs, force=False)
    assert "0" * 64 not in (place.config / "appliance.yaml").read_text()


def test_files_are_not_for_everybody(tmp_path: Path) -> None:
    place = install(tmp_path)
    set_up(place, Answers(), nothing_runs, force=False)
    modes = {path.stat().st_mode & 0o777 for path in place.config.glob("*.yaml")}
    assert modes == {0o640}


def test_a_configuration_is_not_written_over(tmp_path: Path) -> None:
    place = install(tmp_path)
    set_up(place, Answers(), nothing_runs, force=False)
    before = tree(tmp_path)
    with pytest.raises(StartError, match="--force"):
        set_up(place, Answers(workers=MODELS), nothing_runs, force=False)
    assert tree(tmp_path) == before


def test_with_force_the_old_files_are_kept_beside(tmp_path: Path) -> None:
    place = install(tmp_path)
    set_up(place, Answers(), nothing_runs, force=False)
    old = (place.config / "workers.yaml").read_text()
    set_up(place, Answers(workers=MODELS), nothing_runs, force=True)
    [kept] = place.config.glob("workers.yaml.bak-*")
    assert kept.read_text() == old != (place.config / "workers.yaml").read_text()


def test_a_vendors_key_is_put_where_systemd_looks_for_it(tmp_path: Path) -> None:
    place = install(tmp_path)
    given = tmp_path / "given"
    given.write_text("sk-of-vendor\n\n")
    vendor = replace(VENDOR, key_file=str(given))
    done = set_up(place, Answers(away="vendor", vendor=vendor), nothing_runs, force=False)
    path = place.config / "credentials" / "vendor" / "frontier"
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("sk-of-vendor\n", 0o600)
    assert "sk-of-vendor" not in " ".join(done.said)
    assert "credential:vendor_frontier" in (place.config / "workers.yaml").read_text()


def test_where_systemd_can_the_key_is_kept_encrypted(tmp_path: Path) -> None:
    place = install(tmp_path)
    given = tmp_path / "given"
    given.write_text("sk-of-vendor\n\n")
    vendor = replace(VENDOR, key_file=str(given))

    def creds(arguments: Sequence[str]) -> Ran:
        assert arguments[:3] == ["systemd-creds", "encrypt", "--name=sealed_frontier"]
        Path(arguments[4]).write_bytes(b"box of " + Path(arguments[3]).read_bytes())
        return Ran(0)

    set_up(place, Answers(away="vendor", vendor=vendor), creds, force=False)
    kept = place.config / "credentials" / "sealed" / "frontier"
    assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("box of sk-of-vendor\n", 0o600)
    assert not (place.config / "credentials" / "vendor").exists()
    assert "credential:sealed_frontier" in (place.config / "workers.yaml").read_text()


def test_tcp_gets_a_drop_in_with_the_clients_and_a_socket_none(tmp_path: Path) -> None:
    place = install(tmp_path)
    dropin = place.overrides / "conductor.socket.d" / "listen.conf"
    tcp = Answers(listen=Listen(8443, ("192.0.2.0/24",)))
    # The rules of the air gap know such a listener by its mark.
    rules = (place.share / "air-gapped" / "conductor-airgap.nft").read_text()
    assert f"meta mark {LISTENER_MARK:#x} counter" in rules
    set_up(place, tcp, nothing_runs, force=False)
    lines = dropin.read_text().splitlines()
    assert lines.index("ListenStream=") < lines.index("ListenStream=0.0.0.0:8443")
    assert "IPAddressAllow=192.0.2.0/24" in lines
    set_up(place, Answers(), nothing_runs, force=True)
    assert not dropin.exists()


def test_the_embedded_model_is_started_with_the_appliance(tmp_path: Path) -> None:
    place = install(tmp_path)
    set_up(place, Answers(), nothing_runs, force=False)
    wants = place.overrides / "conductor.target.wants" / "conductor-worker@smollm2-135m.service"
    assert str(wants.readlink()) == "/usr/lib/systemd/system/conductor-worker@.service"


def test_air_gapped_is_switched_at_once(tmp_path: Path) -> None:
    place = install(tmp_path)
    set_up(place, Answers(away="air-gapped"), nothing_runs, force=False)
    assert read_marker(place.config).mode == "air-gapped"


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("192.0.2.0/24", True),
        ("2001:db8::/32", True),
        ("10.0.0.7", True),
        ("0.0.0.0/0", False),
        ("::/0", False),
        ("127.0.0.0/8", False),
        ("0.0.0.0/1", False),
        ("192.0.2.1/24", False),
        ("everybody", False),
        ("", False),
    ],
)
def test_ranges_of_clients_are_narrow_and_never_this_machine(text: str, fine: bool) -> None:
    assert (range_problem(text) == "") is fine


ANSWERS = """
listen: {port: 8443, clients: [192.0.2.0/24]}
workers:
  - {id: big, unix: /run/vllm/api.sock, model: big-32b, skill: 0.8}
embedded: false
remote: {provider: openai, model: gpt-x, key_file: /root/key}
names: true
"""


def test_answers_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(ANSWERS)
    read = read_answers(path)
    assert read.listen == Listen(8443, ("192.0.2.0/24",))
    assert read.workers == (replace(MODELS[0], skill=0.8),)
    assert (read.away, read.embedded, read.names) == ("vendor", False, True)
    assert read.vendor and read.vendor.key_file == "/root/key"


@pytest.mark.parametrize(
    "text",
    [
        "embedded: false\n",
        "listen: {port: 8443, clients: []}\n",
        "listen: {port: 8443, clients: [0.0.0.0/0]}\n",
        "remote: everything\n",
        "workers: [{id: conductor-x, unix: /run/x.sock}]\n",
        'workers: [{id: a, unix: "/run/x.sock\\n    tcp: b"}]\n',
        "surprise: true\n",
    ],
)
def test_answers_that_make_no_sense_are_refused_with_their_place(tmp_path: Path, text: str) -> None:
    path = tmp_path / "answers.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"answers\.yaml:"):
        read_answers(path)


def test_the_five_questions_can_be_answered_at_a_terminal(tmp_path: Path) -> None:
    place = install(tmp_path)
    typed = "tcp\n8443\n192.0.2.0/24\nbig=/run/vllm/api.sock\nn\nvendor\nopenai\ngpt-x\n\n\ny\n"
    result = CliRunner().invoke(setup, ["--root", str(tmp_path)], input=typed)
    assert result.exit_code == 0, result.output
    key = re.search(r"ck-[\w-]{43}", result.output)
    assert key and result.output.count(key[0]) == 1
    site = load(place.config)
    assert [worker.id for worker in site.workers] == ["big", "remote"]
    assert site.policy.profile.names
