"""A bundle opens when all of it is right; everything else is refused, for the right reason."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from conductor.errors import BundleError, ConfigError
from conductor.plan.language import LANGUAGE_VERSION
from conductor.planner import bundle as bundles
from conductor.planner import trust
from conductor.planner.bundle import Runtime, open_bundle
from conductor.planner.manifest import (
    MAX_FILES,
    MAX_MANIFEST_BYTES,
    MAX_TOTAL_BYTES,
    Refusal,
    decode,
    encode,
)
from conductor.planner.signature import sign
from conductor.planner.trust import resolve
from conductor.process.keyfiles import generate, public_pem
from support.bundles import (
    ENCODER,
    FILES,
    KEY,
    PROVENANCE,
    TRUSTED,
    changed,
    manifest,
    put_signed,
    spell,
    write,
)

OTHER = Ed25519PrivateKey.generate()
DECODER = "pocket/decoder.onnx"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Short, since one test puts a Unix socket into it."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="c-") as place:
        yield write(Path(place) / "b")


def refused(path: Path, runtime: Runtime | None = None) -> Refusal:
    with pytest.raises(BundleError) as caught:
        open_bundle(path, TRUSTED, runtime)
    message = str(caught.value)
    assert message.isprintable(), "one line, and nothing that a terminal would obey"
    assert str(path.parent) not in message
    return Refusal(caught.value.reason)


# -- what opens -------------------------------------------------------------------------------


def test_a_whole_bundle_opens_and_says_what_it_is(folder: Path) -> None:
    bundle = open_bundle(folder, TRUSTED, Runtime(LANGUAGE_VERSION, 1, [ENCODER]))
    assert bundle.manifest == manifest()
    assert {path: bundle.read(path) for path in FILES} == FILES
    assert len(bundle.id) == len(bundle.signer) == 64
    assert "weights" not in repr(bundle)


def test_the_id_changes_with_any_file(folder: Path) -> None:
    other = write(folder.parent / "other", {**FILES, "report/report.json": b"{}"})
    assert open_bundle(folder, TRUSTED).id != open_bundle(other, TRUSTED).id


def test_a_name_that_is_not_in_the_bundle_is_refused(folder: Path) -> None:
    bundle = open_bundle(folder, TRUSTED)
    for name in ("pocket/none", "../b/pocket/decoder.onnx", str(folder / DECODER), "manifest.json"):
        with pytest.raises(BundleError, match=r"it has .*decoder"):
            bundle.read(name)


def test_the_way_to_a_bundle_may_be_a_link_that_an_operator_set(folder: Path) -> None:
    link = folder.parent / "current"
    link.symlink_to(folder)
    assert open_bundle(link, TRUSTED).manifest == manifest()


def test_any_one_of_several_trusted_keys_is_enough(folder: Path) -> None:
    assert open_bundle(folder, [OTHER.public_key(), *TRUSTED]).manifest == manifest()


# -- what happens on disk ---------------------------------------------------------------------


def replace_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        (folder / DECODER).unlink()
        make(folder / DECODER)

    return act


def link_to_the_same(folder: Path) -> None:
    shutil.move(folder / DECODER, folder.parent / "elsewhere")
    (folder / DECODER).symlink_to(folder.parent / "elsewhere")


def link_folder_to_the_same(folder: Path) -> None:
    shutil.move(folder / "pocket", folder.parent / "elsewhere")
    (folder / "pocket").symlink_to(folder.parent / "elsewhere")


def link_of(name: str) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        shutil.move(folder / name, folder.parent / name)
        (folder / name).symlink_to(folder.parent / name)

    return act


def listening_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def swap(folder: Path) -> None:
    one, other = folder / DECODER, folder / "report/report.json"
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def grow_without_end(folder: Path) -> None:
    os.truncate(folder / DECODER, 1 << 40)


def signature_with(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def act(folder: Path) -> None:
        path = folder / "manifest.sig"
        path.write_bytes(change(path.read_bytes()))

    return act


def signed_by_another(folder: Path) -> None:
    put_signed(folder, (folder / "manifest.json").read_bytes(), OTHER)


def signed_by_another_in_our_name(folder: Path) -> None:
    ours = (folder / "manifest.sig").read_bytes().split()[1]
    theirs = sign(OTHER, (folder / "manifest.json").read_bytes()).split()
    (folder / "manifest.sig").write_bytes(b" ".join((theirs[0], ours, theirs[2])) + b"\n")


def signed_for_something_else(folder: Path) -> None:
    """What a signer of permits, or of bare files, would produce with the same key."""
    data = (folder / "manifest.json").read_bytes()
    head = (folder / "manifest.sig").read_bytes()[:73]
    for other in (data, b"conductor permit v1\x00" + data):
        (folder / "manifest.sig").write_bytes(head + KEY.sign(other).hex().encode() + b"\n")
        assert refused(folder) == Refusal.SIGNATURE


def older_manifest(folder: Path) -> None:
    """A signature over another manifest of the same maker."""
    older = write(folder.parent / "older", created="2025-01-01T00:00:00Z")
    shutil.copy(older / "manifest.sig", folder / "manifest.sig")


DISK: dict[str, tuple[Callable[[Path], object], Refusal]] = {
    "gone": (shutil.rmtree, Refusal.ABSENT),
    "a file in its place": (lambda f: (shutil.rmtree(f), f.write_bytes(b"")), Refusal.ABSENT),
    "an empty directory": (lambda f: (shutil.rmtree(f), f.mkdir()), Refusal.ABSENT),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), Refusal.ABSENT),
    "manifest by another name": (
        lambda f: (f / "manifest.json").rename(f / "Manifest.json"),
        Refusal.ABSENT,
    ),
    "manifest is a pipe": (
        lambda f: ((f / "manifest.json").unlink(), os.mkfifo(f / "manifest.json")),
        Refusal.SPECIAL,
    ),
    "manifest is a link": (link_of("manifest.json"), Refusal.SPECIAL),
    "manifest changed": (
        lambda f: (f / "manifest.json").write_bytes(spell({"schema": 1})),
        Refusal.SIGNATURE,
    ),
    "manifest too long": (
        lambda f: os.truncate(f / "manifest.json", 1 << 40),
        Refusal.SIGNATURE,
    ),
    "no signature": (lambda f: (f / "manifest.sig").unlink(), Refusal.UNSIGNED),
    "signature is a link": (link_of("manifest.sig"), Refusal.SPECIAL),
    "empty signature": (signature_with(lambda s: b""), Refusal.UNSIGNED),
    "endless signature": (
        lambda f: os.truncate(f / "manifest.sig", 1 << 40),
        Refusal.UNSIGNED,
    ),
    "raw signature": (signature_with(lambda s: bytes.fromhex(s.split()[2].decode())),
                      Refusal.UNSIGNED),
    "two signatures": (signature_with(lambda s: s + s), Refusal.UNSIGNED),
    "signature with spaces": (signature_with(lambda s: s.replace(b" ", b"  ")), Refusal.UNSIGNED),
    "signature without newline": (signature_with(bytes.rstrip), Refusal.UNSIGNED),
    "signature in capitals": (
        signature_with(lambda s: s[:73] + s[73:].upper()),
        Refusal.UNSIGNED,
    ),
    "signature of zeros": (
        signature_with(lambda s: s[:73] + b"0" * 128 + b"\n"),
        Refusal.SIGNATURE,
    ),
    "another signer": (signed_by_another, Refusal.KEY),
    "another signer in our name": (signed_by_another_in_our_name, Refusal.SIGNATURE),
    "signed as something else": (signed_for_something_else, Refusal.SIGNATURE),
    "signature of an older one": (older_manifest, Refusal.SIGNATURE),
    "file missing": (lambda f: (f / DECODER).unlink(), Refusal.MISSING),
    "folder missing": (lambda f: shutil.rmtree(f / "report"), Refusal.MISSING),
    "file renamed": (lambda f: (f / DECODER).rename(f / "pocket/x.onnx"), Refusal.EXTRA),
    "file in capitals": (lambda f: (f / DECODER).rename(f / "pocket/Decoder.onnx"), Refusal.EXTRA),
    "extra file": (lambda f: (f / "pocket/x.onnx").write_bytes(b""), Refusal.EXTRA),
    "extra file at the top": (lambda f: (f / "x.py").write_bytes(b""), Refusal.EXTRA),
    "hidden file": (lambda f: (f / "pocket/.x").write_bytes(b""), Refusal.EXTRA),
    "extra folder": (lambda f: (f / "lm").mkdir(), Refusal.EXTRA),
    "extra folder below": (lambda f: (f / "pocket/lm").mkdir(), Refusal.EXTRA),
    "extra link": (lambda f: (f / "pocket/x").symlink_to(DECODER), Refusal.EXTRA),
    "a second manifest": (lambda f: (f / "pocket/manifest.json").write_bytes(b""), Refusal.EXTRA),
    "a name with orders to a terminal": (
        lambda f: (f / "pocket" / "\x1b[2J\nfine").write_bytes(b""),
        Refusal.EXTRA,
    ),
    "a name that is no text": (
        lambda f: (f / os.fsdecode(b"\xff\xfe")).write_bytes(b""),
        Refusal.EXTRA,
    ),
    "file cut": (lambda f: os.truncate(f / DECODER, 3), Refusal.TAMPERED),
    "file emptied": (lambda f: os.truncate(f / DECODER, 0), Refusal.TAMPERED),
    "file grown without end": (grow_without_end, Refusal.TAMPERED),
    "empty file filled": (lambda f: (f / "pocket/cards.npz").write_bytes(b"x"), Refusal.TAMPERED),
    "two files swapped": (swap, Refusal.TAMPERED),
    "file is a link to the same bytes": (link_to_the_same, Refusal.SPECIAL),
    "folder is a link to the same files": (link_folder_to_the_same, Refusal.SPECIAL),
    "file is a dangling link": (replace_by(lambda p: p.symlink_to("none")), Refusal.SPECIAL),
    "file is a link to a device": (replace_by(lambda p: p.symlink_to("/dev/zero")),
                                   Refusal.SPECIAL),
    "file is a pipe": (replace_by(os.mkfifo), Refusal.SPECIAL),
    "file is a socket": (replace_by(listening_socket), Refusal.SPECIAL),
    "file is a folder": (replace_by(Path.mkdir), Refusal.SPECIAL),
    "folder is a file": (
        lambda f: (shutil.rmtree(f / "plan"), (f / "plan").write_bytes(b"")),
        Refusal.SPECIAL,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DISK)
def test_a_directory_that_is_not_exactly_the_bundle_is_refused(folder: Path, name: str) -> None:
    act, reason = DISK[name]
    act(folder)
    assert refused(folder) == reason


def test_nobody_is_trusted_by_default(folder: Path) -> None:
    with pytest.raises(BundleError, match="not trusted here"):
        open_bundle(folder, [])


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without the rights of root, who reads everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_cannot_be_read_is_refused(folder: Path) -> None:
    folder.parent.chmod(0o755)
    with as_nobody():
        open_bundle(folder, TRUSTED)  # nothing else is in the way
    (folder / DECODER).chmod(0)
    with as_nobody():
        assert refused(folder) == Refusal.UNREADABLE


def test_a_disk_that_fails_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def failing(path: Any, *args: Any, **more: Any) -> int:
        if path == "decoder.onnx":
            raise OSError(5, "text of the system")
        return real(path, *args, **more)

    monkeypatch.setattr(os, "open", failing)
    assert refused(folder) == Refusal.UNREADABLE


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_open(folder: Path) -> None:
    before = open_descriptors()
    open_bundle(folder, TRUSTED)
    for act in (link_folder_to_the_same, lambda f: (f / "manifest.sig").unlink()):
        act(folder)
        refused(folder)
    assert open_descriptors() == before


# -- what changes while it is looked at -------------------------------------------------------


def test_a_file_that_is_replaced_after_the_check_is_not_seen(folder: Path) -> None:
    bundle = open_bundle(folder, TRUSTED)
    shutil.rmtree(folder)
    write(folder, {**FILES, DECODER: b"evil"})
    assert bundle.read(DECODER) == FILES[DECODER]


def test_a_directory_that_is_swapped_between_signature_and_files_is_not_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bundles.check

    def swapping(*args: Any) -> str:
        folder.rename(folder.parent / "good")
        write(folder, {**FILES, DECODER: b"evil"})
        return real(*args)

    monkeypatch.setattr(bundles, "check", swapping)
    bundle = open_bundle(folder, TRUSTED)
    assert (folder / DECODER).read_bytes() == b"evil"
    assert bundle.read(DECODER) == FILES[DECODER]


def test_a_manifest_that_is_swapped_after_its_signature_is_not_seen(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = bundles.decode

    def swapping(data: bytes) -> Any:
        (folder / "manifest.json").write_bytes(changed(lambda m: m["files"].clear()))
        return real(data)

    monkeypatch.setattr(bundles, "decode", swapping)
    assert open_bundle(folder, TRUSTED).manifest == manifest()


# -- any byte ---------------------------------------------------------------------------------

_PLACE = st.tuples(
    st.sampled_from(["manifest.json", "manifest.sig", *(path for path in FILES if FILES[path])]),
    st.integers(0, 1 << 16),
)


@pytest.fixture(scope="module")
def model_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Left whole by every test that uses it: hypothesis runs many cases on one."""
    return write(tmp_path_factory.mktemp("bundle") / "b")


@settings(deadline=None, max_examples=300)
@given(place=_PLACE, mask=st.integers(1, 255))
def test_no_byte_of_any_file_may_change(
    model_bundle: Path, place: tuple[str, int], mask: int
) -> None:
    path = model_bundle / place[0]
    before = path.read_bytes()
    after = bytearray(before)
    after[place[1] % len(before)] ^= mask
    path.write_bytes(after)
    try:
        refused(model_bundle)
    finally:
        path.write_bytes(before)


@settings(deadline=None, max_examples=150)
@given(place=_PLACE, added=st.binary(max_size=3), dropped=st.integers(0, 3))
def test_no_byte_of_any_file_may_come_or_go(
    model_bundle: Path, place: tuple[str, int], added: bytes, dropped: int
) -> None:
    path = model_bundle / place[0]
    before = path.read_bytes()
    at = place[1] % (len(before) + 1)
    after = before[:at] + added + before[at + dropped :]
    path.write_bytes(after)
    try:
        if after == before:
            open_bundle(model_bundle, TRUSTED)
        else:
            refused(model_bundle)
    finally:
        path.write_bytes(before)


# -- manifests that a trusted key has signed, and that are wrong all the same ------------------


def setting(*keys: str, to: Any) -> bytes:
    def change(record: Any) -> None:
        for key in keys[:-1]:
            record = record[key]
        record[keys[-1]] = to

    return changed(change)


def without(*keys: str) -> bytes:
    def change(record: Any) -> None:
        for key in keys[:-1]:
            record = record[key]
        del record[keys[-1]]

    return changed(change)


def with_path(path: str) -> bytes:
    return setting("files", path, to={"sha256": "d" * 64, "size": 0})


RIGHT = encode(manifest())
DEEP: Any = None
for _ in range(80):
    DEEP = [DEEP]

SIGNED: dict[str, bytes] = {
    "nothing": b"",
    "no JSON": b"{",
    "no text": b"\xff\xfe",
    "a list": b"[]\n",
    "null": b"null\n",
    "a key twice": RIGHT.replace(b'  "kind"', b'  "features": 1,\n  "kind"'),
    "a file twice": RIGHT.replace(b'  "files": {', b'  "files": {},\n  "files": {'),
    "compact": orjson.dumps(orjson.loads(RIGHT), option=orjson.OPT_SORT_KEYS),
    "no newline": RIGHT.rstrip(),
    "two newlines": RIGHT + b"\n",
    "byte order mark": b"\xef\xbb\xbf" + RIGHT,
    "a letter escaped": RIGHT.replace(b"pocket/seen", b"pocket\\/seen"),
    "a float for a whole number": RIGHT.replace(b'"seed": 3', b'"seed": 3.0'),
    "NaN": RIGHT.replace(b"0.0003", b"NaN"),
    "an infinite number": RIGHT.replace(b"0.0003", b"1e999"),
    "a number of 40 digits": RIGHT.replace(b"0.0003", b"1" * 40),
    "deep": setting("provenance", "recipe", "x", to=DEEP),
    "deeper than any reader": RIGHT.replace(b"0.0003", b"[" * 5000 + b"]" * 5000),
    "another kind": setting("kind", to="lm"),
    "kind is null": setting("kind", to=None),
    "an unknown field": setting("extra", to=1),
    "an unknown field of a file": setting("files", DECODER, "mode", to=1),
    "an unknown field of the encoder": setting("encoder", "name", to="x"),
    "an unknown field of the provenance": setting("provenance", "host", to="x"),
    "no created": without("created"),
    "no features": without("features"),
    "no files": without("files"),
    "no provenance": without("provenance"),
    "no tokenizer": without("encoder", "tokenizer"),
    "no size": without("files", DECODER, "size"),
    "no seed": without("provenance", "seed"),
    "no decoder": without("files", DECODER),
    "no list of seen prompts": without("files", "pocket/seen.bin"),
    "files is a list": setting("files", to=[]),
    "a file is null": setting("files", DECODER, to=None),
    "a negative size": setting("files", DECODER, "size", to=-1),
    "size true": setting("files", DECODER, "size", to=True),
    "size as text": setting("files", DECODER, "size", to="1"),
    "a short hash": setting("files", DECODER, "sha256", to="d" * 63),
    "a hash in capitals": setting("files", DECODER, "sha256", to="D" * 64),
    "a hash with a newline": setting("files", DECODER, "sha256", to="d" * 64 + "\n"),
    "a hash that is a number": setting("files", DECODER, "sha256", to=1),
    "too many files": changed(
        lambda m: m["files"].update(
            {f"pocket/{n}": {"sha256": "d" * 64, "size": 0} for n in range(MAX_FILES)}
        )
    ),
    "too many bytes": setting("files", DECODER, "size", to=MAX_TOTAL_BYTES),
    "bytes beyond counting": setting("files", DECODER, "size", to=2**63),
    "created otherwise": setting("created", to="2026-11-30"),
    "created in other digits": setting("created", to="٢٠٢٦-11-30T12:00:00Z"),
    "features false": setting("features", to=False),
    "a negative seed": setting("provenance", "seed", to=-1),
    "a list in the summary": setting("provenance", "summary", "x", to=[]),
    "orders to a terminal": setting("provenance", "summary", "x", to="\x1b[2J"),
    "orders in a name": setting("provenance", "versions", "\x1b[2J", to="1"),
    "no hash in data": setting("provenance", "data", "x", to="1"),
    "recipe as text": setting("provenance", "recipe", to="x"),
    **{
        f"path {path!r}": with_path(path)
        for path in (
            "",
            "/etc/passwd",
            "//pocket/x",
            "../x",
            "pocket/../../x",
            "pocket/..",
            "pocket/./x",
            "./pocket/x",
            "pocket//x",
            "pocket/",
            "pocket",
            "pocket/.hidden",
            "pocket\\x",
            "pocket/a\\..\\x",
            "pocket/x\n",
            "pocket/x\x00",
            "pocket/ x",
            "pocket/é",
            "pocket/a/b/c/d",
            f"pocket/{'x' * 65}",
            "manifest.json",
            "manifest.sig",
            "lm/x",
            "tokenizer/x",
            "Pocket/x",
            "pocketx/y",
            "~/x",
            "C:/x",
        )
    },
}


@pytest.mark.parametrize("name", SIGNED)
def test_a_signature_does_not_make_a_wrong_manifest_right(folder: Path, name: str) -> None:
    assert SIGNED[name] != RIGHT
    put_signed(folder, SIGNED[name])
    assert refused(folder) == Refusal.MANIFEST


@pytest.mark.parametrize("schema", [0, 2, True, 1.0, "1", None, [1]])
def test_another_schema_is_refused_before_anything_is_made_of_it(folder: Path, schema: Any) -> None:
    put_signed(folder, orjson.dumps({"schema": schema, "new": "world"}))
    assert refused(folder) == Refusal.SCHEMA


@pytest.mark.parametrize("by", [-1, 1])
def test_a_size_that_is_not_the_files_is_refused_though_its_hash_is_right(
    folder: Path, by: int
) -> None:
    put_signed(folder, setting("files", DECODER, "size", to=len(FILES[DECODER]) + by))
    assert refused(folder) == Refusal.TAMPERED


def test_a_path_that_is_file_and_folder_is_refused(folder: Path) -> None:
    put_signed(folder, with_path(f"{DECODER}/x"))
    assert refused(folder) == Refusal.MISSING


FITS: dict[str, tuple[dict[str, Any], Runtime, Refusal]] = {
    "older language": ({"plan_language": 0}, Runtime(), Refusal.LANGUAGE),
    "newer language": ({"plan_language": LANGUAGE_VERSION + 1}, Runtime(), Refusal.LANGUAGE),
    "other features": ({"features": 2}, Runtime(features=1), Refusal.FEATURES),
    "other encoder": (
        {"encoder": replace(ENCODER, onnx="e" * 64)},
        Runtime(encoders=[ENCODER]),
        Refusal.ENCODER,
    ),
    "other tokenizer": (
        {"encoder": replace(ENCODER, tokenizer="e" * 64)},
        Runtime(encoders=[ENCODER]),
        Refusal.ENCODER,
    ),
    "an encoder with another's tokenizer": (
        {},
        Runtime(encoders=[replace(ENCODER, tokenizer="e" * 64), replace(ENCODER, onnx="e" * 64)]),
        Refusal.ENCODER,
    ),
    "no encoder at all": ({}, Runtime(encoders=[]), Refusal.ENCODER),
}


@pytest.mark.parametrize("name", FITS)
def test_a_bundle_for_another_release_is_refused(tmp_path: Path, name: str) -> None:
    changes, runtime, reason = FITS[name]
    assert refused(write(tmp_path / "b", **changes), runtime) == reason


# -- manifests, without a disk ----------------------------------------------------------------

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner)
    ),
    max_leaves=8,
)


@given(recipe=st.dictionaries(st.sampled_from("abcdé \n"), _JSON), features=st.integers(0, 2**31))
def test_what_is_encoded_is_decoded_to_the_same(recipe: Any, features: int) -> None:
    whole = manifest(features=features, provenance=replace(PROVENANCE, recipe=recipe))
    assert decode(encode(whole)) == whole
    assert encode(decode(encode(whole))) == encode(whole)


@given(data=st.binary(max_size=200) | st.builds(spell, _JSON))
def test_no_bytes_bring_the_reader_down(data: bytes) -> None:
    with pytest.raises(BundleError):
        decode(data)


@pytest.mark.parametrize(
    "recipe",
    [
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": {1, 2}},
        {"x": Path("x")},
        {"x": b"x"},
        {"x": 2**70},
        {"x": "\ud800"},
        {"x": DEEP},
        {"x": "x" * MAX_MANIFEST_BYTES},
    ],
    ids=["nan", "inf", "set", "path", "bytes", "digits", "surrogate", "deep", "long"],
)
def test_a_recipe_that_no_manifest_can_hold_is_not_encoded(recipe: Any) -> None:
    with pytest.raises(BundleError):
        encode(manifest(provenance=replace(PROVENANCE, recipe=recipe)))


# -- who is trusted ---------------------------------------------------------------------------


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with a bundle of its own inside."""
    place = tmp_path / "shipped"
    write(place / "pocket")
    (place / "pocket.pub").write_bytes(public_pem(KEY.public_key()))
    monkeypatch.setattr(trust, "shipped_folder", lambda: place)
    return place


@pytest.fixture
def site_key(tmp_path: Path) -> Path:
    generate(tmp_path / "site.key", tmp_path / "site.pub", "bundle")
    return tmp_path / "site.pub"


def test_the_shipped_bundle_is_checked_against_the_key_beside_it(shipped: Path) -> None:
    assert resolve("pocket").path == shipped / "pocket"
    signed_by_another(shipped / "pocket")
    with pytest.raises(BundleError, match="not trusted here"):
        resolve("pocket")


def test_a_site_key_does_not_vouch_for_the_shipped_bundle(shipped: Path, tmp_path: Path) -> None:
    signed_by_another(shipped / "pocket")
    key = tmp_path / "other.pub"
    key.write_bytes(public_pem(OTHER.public_key()))
    with pytest.raises(BundleError, match="not trusted here"):
        resolve("pocket", [key])


def test_the_shipped_key_does_not_vouch_for_a_path(
    shipped: Path, folder: Path, site_key: Path
) -> None:
    for keys in ([], [site_key]):
        with pytest.raises(BundleError) as caught:
            resolve(folder, keys)
        assert caught.value.reason == Refusal.KEY


def test_a_path_is_checked_against_the_keys_that_are_named(folder: Path, tmp_path: Path) -> None:
    key = tmp_path / "maker.pub"
    key.write_bytes(public_pem(KEY.public_key()))
    assert resolve(str(folder), [key]).manifest == manifest()


def test_a_directory_called_pocket_is_not_the_shipped_one(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "pocket", {**FILES, DECODER: b"evil"})
    monkeypatch.chdir(tmp_path)
    assert resolve("pocket").read(DECODER) == FILES[DECODER]
    with pytest.raises(BundleError):
        resolve("./pocket")


def test_a_package_without_a_bundle_says_so(shipped: Path) -> None:
    shutil.rmtree(shipped / "pocket")
    with pytest.raises(BundleError, match="holds no trained conductor"):
        resolve("pocket")


def test_what_the_release_runs_is_asked_of_the_shipped_one_too(shipped: Path) -> None:
    with pytest.raises(BundleError) as caught:
        resolve("pocket", runtime=Runtime(features=9))
    assert caught.value.reason == Refusal.FEATURES


def test_a_key_that_cannot_be_used_stops_everything(folder: Path, tmp_path: Path) -> None:
    generate(tmp_path / "k", tmp_path / "k.pub", "bundle")
    for bad in (tmp_path / "none", tmp_path / "k"):
        with pytest.raises(ConfigError, match="the bundle key"):
            resolve(folder, [tmp_path / "k.pub", bad])
