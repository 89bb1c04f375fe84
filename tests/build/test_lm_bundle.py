"""A language model's bundle: whole, signed, its parts of one export, or refused for the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tokenizers import Tokenizer

from conductor.errors import BundleError
from conductor.plan import tablefile
from conductor.plan.automaton import compile
from conductor.plan.prompt import CHATML, PROMPT_VERSION, Prompter
from conductor.plan.tokens import of_tokenizer
from conductor.planner import kinds
from conductor.planner.bundle import Bundle, Runtime, open_bundle
from conductor.planner.manifest import PromptId, Refusal, decode, encode
from conductor.process.keyfiles import public_pem
from conductor_build.bundle import write_bundle
from conductor_build.cli import conductor_build
from conductor_build.lm import lmbundle
from conductor_build.lm.base import BaseError
from conductor_build.lm.merge import ExportError
from conductor_build.lm.quantise import Scheme
from support.bundles import KEY, TRUSTED, put_signed
from support.lmbundles import VOCABULARY, tokenizer_json
from support.lmexports import export, write_model
from support.written import LM_FACTS, LM_FILES

WEIGHTS = "lm/model.safetensors"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "m")


@pytest.fixture(scope="module")
def made(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Never changed; `again` gives copies."""
    return export(plain, tmp_path_factory.mktemp("made") / "b").path


def again(made: Path, folder: Path, **changed: bytes | None) -> Path:
    """A bundle with other files, rightly signed by a maker who did not look: `plan__prompt_json`
    stands for plan/prompt.json."""
    names = {path.replace("/", "__").replace(".", "_"): path for path in _files(made)}
    contents: dict[str, bytes | Path] = dict(_files(made).items())
    for name, data in changed.items():
        if data is None:
            del contents[names[name]]
        else:
            contents[names[name]] = data
    manifest = open_bundle(made, TRUSTED).manifest
    assert manifest.prompt
    facts = replace(
        LM_FACTS, prompt=manifest.prompt, precision=manifest.precision or "", created=None
    )
    return write_bundle(folder, contents, facts, KEY).path


def _files(made: Path) -> dict[str, Path]:
    found = {str(path.relative_to(made)): path for path in made.rglob("*") if path.is_file()}
    return {name: path for name, path in found.items() if not name.startswith("manifest")}


def refused(path: Path) -> Refusal:
    with pytest.raises(BundleError) as caught:
        lmbundle.check(open_bundle(path, TRUSTED))
    assert str(caught.value).isprintable()
    return Refusal(caught.value.reason)


# -- what is written ------------------------------------------------------------------------------


def test_an_export_opens_and_its_parts_belong_together(made: Path) -> None:
    bundle = open_bundle(made, TRUSTED, Runtime(kind="lm"))
    lmbundle.check(bundle)
    assert bundle.manifest.kind == "lm"
    assert bundle.manifest.precision == "float32"
    assert bundle.manifest.prompt == PromptId(
        PROMPT_VERSION, json.loads(bundle.read("plan/prompt.json"))["digest"]
    )
    assert json.loads(bundle.read("plan/prompt.json"))["rounds"] == 2
    assert sorted(path.name for path in made.parent.iterdir()) == ["b"]


@pytest.mark.parametrize("name", ["int8", "int4", "fp8"])
def test_a_quantised_export_says_so_and_what_it_cost(plain: Path, tmp_path: Path, name) -> None:
    bundle = export(plain, tmp_path / "b", quantise=Scheme(name))
    lmbundle.check(bundle)
    assert bundle.manifest.precision == name
    assert json.loads(bundle.read("lm/quantisation.json"))["scheme"] == name
    errors = json.loads(bundle.read("report/parity.json"))["quantised"]["errors"]
    assert 0 < errors["mean"] < errors["max"] < 0.05


def test_weights_are_hashed_in_pieces_and_not_kept(made: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("conductor.planner.bundle._PIECE", 1000)
    bundle = open_bundle(made, TRUSTED)
    assert WEIGHTS not in bundle._contents
    assert "lm/tokenizer.json" in bundle._contents
    assert bundle.read(WEIGHTS) == (made / WEIGHTS).read_bytes()


def test_weights_may_be_larger_than_what_is_held(made: Path, tmp_path: Path) -> None:
    manifest = open_bundle(made, TRUSTED).manifest
    big = replace(manifest.files[WEIGHTS], size=16 * 1024**3)
    assert decode(encode(replace(manifest, files={**manifest.files, WEIGHTS: big})))
    tokenizer = replace(big, size=kinds.MAX_TOTAL_BYTES)
    with pytest.raises(BundleError, match="weights aside"):
        encode(replace(manifest, files={**manifest.files, "lm/tokenizer.json": tokenizer}))


# -- what is refused ------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


DISK: dict[str, tuple[Callable[[Path], object], Refusal]] = {
    "first byte of the weights": (lambda f: flip(f / WEIGHTS, 0), Refusal.TAMPERED),
    "last byte of the weights": (lambda f: flip(f / WEIGHTS, -1), Refusal.TAMPERED),
    "weights cut": (lambda f: os.truncate(f / WEIGHTS, 1000), Refusal.TAMPERED),
    "weights grown": (
        lambda f: os.truncate(f / WEIGHTS, (f / WEIGHTS).stat().st_size + 1),
        Refusal.TAMPERED,
    ),
    "weights missing": (lambda f: (f / WEIGHTS).unlink(), Refusal.MISSING),
    "weights a link": (
        lambda f: ((f / WEIGHTS).rename(f.parent / "w"), (f / WEIGHTS).symlink_to(f.parent / "w")),
        Refusal.SPECIAL,
    ),
    "a pickle beside them": (lambda f: (f / "lm/x.bin").write_bytes(b""), Refusal.EXTRA),
    "another tokenizer": (lambda f: flip(f / "lm/tokenizer.json", 9), Refusal.TAMPERED),
    "other tables": (lambda f: flip(f / "plan/tables.bin", -1), Refusal.TAMPERED),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), Refusal.ABSENT),
}


@pytest.mark.parametrize("name", DISK)
def test_what_was_changed_on_disk_is_refused(made: Path, tmp_path: Path, name: str) -> None:
    act, reason = DISK[name]
    path = again(made, tmp_path / "b")
    act(path)
    assert refused(path) == reason


def test_weights_that_change_after_the_check_are_not_handed_out(made: Path, tmp_path: Path) -> None:
    bundle = open_bundle(again(made, tmp_path / "b"), TRUSTED)
    flip(bundle.path / WEIGHTS, 5)
    with pytest.raises(BundleError, match="not what the manifest says"):
        bundle.read(WEIGHTS)


def prompt_with(made: Path, **changes: Any) -> bytes:
    return json.dumps({**json.loads((made / "plan/prompt.json").read_text()), **changes}).encode()


def tables_of(tokenizer: bytes, eos: int = 1) -> bytes:
    return tablefile.pack(compile(of_tokenizer(tokenizer, VOCABULARY), [eos]))


def swapped() -> bytes:
    """The same words as the tokenizer's, two of them with each other's id."""
    document = json.loads(tokenizer_json())
    vocab = document["model"]["vocab"]
    vocab["0"], vocab["1"] = vocab["1"], vocab["0"]
    return json.dumps(document).encode()


SIGNED: dict[str, tuple[Callable[[Path], dict[str, Any]], Refusal]] = {
    "another prompt version": (
        lambda m: {"plan__prompt_json": prompt_with(m, prompt_version=PROMPT_VERSION + 1)},
        Refusal.FEATURES,
    ),
    "another prompt": (
        lambda m: {"plan__prompt_json": prompt_with(m, digest="0" * 64)},
        Refusal.FEATURES,
    ),
    "other examples": (
        lambda m: {"plan__prompt_json": prompt_with(m, examples=1)},
        Refusal.FEATURES,
    ),
    "another language": (
        lambda m: {"plan__prompt_json": prompt_with(m, language_version=99)},
        Refusal.LANGUAGE,
    ),
    "a tokenizer in which digits have other ids": (
        lambda m: {"lm__tokenizer_json": swapped()},
        Refusal.ENCODER,
    ),
    "tables of a tokenizer in which digits have other ids": (
        lambda m: {"plan__tables_bin": tables_of(swapped())},
        Refusal.ENCODER,
    ),
    "damaged tables": (lambda m: {"plan__tables_bin": b"tables"}, Refusal.LANGUAGE),
    "a model of another size": (
        lambda m: {"lm__config_json": b'{"vocab_size": 699}'},
        Refusal.TAMPERED,
    ),
    "a configuration that is none": (lambda m: {"lm__config_json": b"[]"}, Refusal.MANIFEST),
}


@pytest.mark.parametrize("name", SIGNED)
def test_parts_that_do_not_fit_are_refused_though_signed(
    made: Path, tmp_path: Path, name: str
) -> None:
    change, reason = SIGNED[name]
    assert refused(again(made, tmp_path / "b", **change(made))) == reason


def test_tables_with_one_way_changed_are_refused(made: Path, tmp_path: Path) -> None:
    """All sizes and spellings are right, so only compiling again can tell."""
    tables = tablefile.unpack((made / "plan/tables.bin").read_bytes())
    place = next(i for i, after in enumerate(tables.next) if after > 0)
    tables.next[place] = -1
    path = again(made, tmp_path / "b", plan__tables_bin=tablefile.pack(tables))
    assert refused(path) == Refusal.ENCODER


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(precision="int4"),
        lambda m: m["prompt"].update(digest="0" * 64),
        lambda m: m["prompt"].update(version=PROMPT_VERSION + 1),
    ],
    ids=["precision", "digest", "version"],
)
def test_a_manifest_that_says_otherwise_than_its_files_is_refused(
    made: Path, tmp_path: Path, change: Callable[[Any], object]
) -> None:
    path = again(made, tmp_path / "b")
    record = json.loads((path / "manifest.json").read_bytes())
    change(record)
    put_signed(path, json.dumps(record, indent=2, sort_keys=True).encode() + b"\n")
    assert refused(path) == Refusal.TAMPERED


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(precision="int3"),
        lambda m: m.update(features=1),
        lambda m: m.pop("prompt"),
        lambda m: m["prompt"].update(name="x"),
        lambda m: m["files"].pop(WEIGHTS),
        lambda m: m["files"].pop("lm/tokenizer.json"),
        lambda m: m["files"].update({"pocket/x": {"sha256": "d" * 64, "size": 0}}),
        lambda m: m.update(kind="engine"),
    ],
)
def test_a_manifest_that_is_none_of_a_language_model_is_refused(
    made: Path, change: Callable[[Any], object]
) -> None:
    record = json.loads((made / "manifest.json").read_bytes())
    change(record)
    with pytest.raises(BundleError) as caught:
        decode(json.dumps(record, indent=2, sort_keys=True).encode() + b"\n")
    assert caught.value.reason == Refusal.MANIFEST


def test_an_engine_refuses_the_other_kind(made: Path) -> None:
    for runtime in (Runtime(kind="pocket"), Runtime(features=1, encoders=[])):
        with pytest.raises(BundleError, match="kind lm") as caught:
            open_bundle(made, TRUSTED, runtime)
        assert caught.value.reason == Refusal.KIND


# -- exports that do not come to an end -----------------------------------------------------------


def odd() -> bytes:
    """Spells every 7 as 8."""
    document = json.loads(tokenizer_json())
    document["normalizer"] = {"type": "Replace", "pattern": {"String": "7"}, "content": "8"}
    return Tokenizer.from_str(json.dumps(document)).to_str().encode()


def test_a_tokenizer_that_changes_digits_is_not_exported(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", odd())
    with pytest.raises(BaseError, match="changes numbers"):
        export(folder, tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_parts_that_do_not_fit_are_found_before_anybody_sees_the_bundle(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_another(*_: Any) -> bytes:
        return prompt_with(made_elsewhere, digest="0" * 64)

    made_elsewhere = export(plain, tmp_path / "first").path
    monkeypatch.setattr(lmbundle, "prompt_file", of_another)
    with pytest.raises(BundleError):
        export(plain, tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["first"]


def test_a_bundle_that_is_there_is_never_replaced(made: Path, plain: Path) -> None:
    before = open_bundle(made, TRUSTED).id
    with pytest.raises(BundleError, match="something is there"):
        export(plain, made)
    assert open_bundle(made, TRUSTED).id == before


def test_a_full_disk_is_a_clear_error(plain: Path, tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("conductor_build.lm.export.save_checkpoint", full)
    with pytest.raises(ExportError, match="make room"):
        export(plain, tmp_path / "b")
    assert list(tmp_path.iterdir()) == []


def test_whatever_step_it_is_killed_at_there_is_a_whole_bundle_or_none(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(range(256)) * 64)
    (tmp_path / "out").mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "support.bundle_kills", tmp_path / "out", tmp_path / "weights"],
        check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, sys.path))},
    )  # fmt: skip
    tries = [json.loads(line) for line in ran.stdout.splitlines()]
    whole, killed = tries[-1]["state"], [one["state"] for one in tries[:-1]]
    assert len(whole) == 64
    assert tries[-1]["ended"] == 0
    assert set(killed) <= {"absent", whole}
    assert killed.count("absent") > 2 * len(LM_FILES)
    assert not any("partial" in name for name in tries[-1]["names"])


# -- the commands ---------------------------------------------------------------------------------


@pytest.fixture
def key(tmp_path: Path) -> str:
    path = tmp_path / "site.pub"
    path.write_bytes(public_pem(KEY.public_key()))
    return str(path)


def ran(*arguments: Any) -> Any:
    return CliRunner().invoke(conductor_build, list(map(str, arguments)))


def test_verify_checks_both_kinds(made: Path, key: str) -> None:
    found = ran("bundle", "verify", made, "--key", key)
    assert found.exit_code == 0
    assert "kind       lm" in found.output
    assert "weights    float32" in found.output
    shown = json.loads(ran("bundle", "verify", made, "--key", key, "--json").output)
    assert (shown["kind"], shown["precision"], shown["ok"]) == ("lm", "float32", True)
    assert "encoder" not in shown
    assert "features   " in ran("bundle", "verify", "pocket").output


def test_verify_refuses_parts_that_do_not_fit(made: Path, tmp_path: Path, key: str) -> None:
    path = again(made, tmp_path / "b", lm__tokenizer_json=swapped())
    found = ran("bundle", "verify", path, "--key", key, "--json")
    assert (found.exit_code, json.loads(found.output)["reason"]) == (1, "encoder")


def test_export_writes_a_bundle_that_verifies_with_the_key_beside_it(
    plain: Path, tmp_path: Path
) -> None:
    out = tmp_path / "b"
    how = ("--quantise", "int4", "--group", 32, "--asymmetric")
    found = ran("export", plain, "--out", out, "--examples", 0, "--compare", 0, *how)
    assert found.exit_code == 0, found.output
    assert str(out) in found.output
    assert ran("bundle", "verify", out, "--key", f"{out}.key.pub").exit_code == 0
    layout = json.loads((out / "lm/quantisation.json").read_text())
    assert (layout["group"], layout["symmetric"]) == (32, False)


def test_the_prefix_is_the_one_of_the_tokenizer(made: Path) -> None:
    bundle: Bundle = open_bundle(made, TRUSTED)
    tokenizer = Tokenizer.from_str(bundle.read("lm/tokenizer.json").decode())
    told = Prompter.of(
        CHATML, lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids), examples=0
    )
    assert json.loads(bundle.read("plan/prompt.json"))["digest"] == told.digest
