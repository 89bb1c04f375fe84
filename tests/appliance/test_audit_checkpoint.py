"""Signed notes: written as the transparency tools of others read them, and taken apart strictly."""

from __future__ import annotations

import base64

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.audit.checkpoint import (
    MAX_NOTE_BYTES,
    Checkpoint,
    read_checkpoint,
    read_note,
    read_verifier_key,
    sign,
    verifier_key,
)

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
NAME = "conductor-audit/0011"
ROOT = bytes(range(32))
NOTE = sign(Checkpoint(NAME, 17, ROOT).text, NAME, KEY)
GO_CHECKSUM_DATABASE = "sum.golang.org+033de0ae+Ac4zctda0e5eza+HJyk9SxEdh+s3Ux18htTTAD8OuAn8"


def test_a_checkpoint_is_read_back_as_it_was_signed() -> None:
    note = read_note(NOTE)
    assert read_checkpoint(note) == Checkpoint(NAME, 17, ROOT)
    assert note.signed_by(NAME, KEY.public_key())


def test_a_checkpoint_has_the_lines_of_the_specification() -> None:
    first, second, third, empty, signature, end = NOTE.split("\n")
    assert (first, second, empty, end) == (NAME, "17", "", "")
    assert base64.b64decode(third) == ROOT
    dash, name, encoded = signature.split(" ")
    assert (dash, name) == ("\u2014", NAME) and len(base64.b64decode(encoded)) == 4 + 64


def test_a_verifier_key_of_somebody_else_is_read_and_its_id_computed_alike() -> None:
    name, key = read_verifier_key(GO_CHECKSUM_DATABASE)
    assert name == "sum.golang.org" and verifier_key(name, key) == GO_CHECKSUM_DATABASE


def test_a_changed_text_a_foreign_key_and_a_foreign_name_are_not_signed() -> None:
    note, public = read_note(NOTE), KEY.public_key()
    assert not read_note(NOTE.replace("17", "18")).signed_by(NAME, public)
    assert not note.signed_by(NAME, Ed25519PrivateKey.generate().public_key())
    assert not note.signed_by("conductor-audit/0012", public)
    short = base64.b64encode(b"abcd").decode()
    assert not read_note(f"x\n\n— {NAME} {short}\n").signed_by(NAME, public)


def test_signatures_of_others_beside_ours_change_nothing() -> None:
    witness = sign("x\n", "witness.example", Ed25519PrivateKey.generate()).partition("\n\n")[2]
    both = read_note(NOTE + witness)
    assert len(both.signatures) == 2 and both.signed_by(NAME, KEY.public_key())


@pytest.mark.parametrize(
    "note",
    [
        "",
        "text without signature\n",
        NOTE.rstrip("\n"),
        NOTE.replace("— ", "- "),
        NOTE.replace("— ", "—  "),
        NOTE + "\n",
        NOTE + "x" * MAX_NOTE_BYTES + "\n",
        f"x\n\n— {NAME} A\n",
    ],
)
def test_what_is_no_signed_note_is_refused(note: str) -> None:
    with pytest.raises(ValueError):
        read_note(note)


@pytest.mark.parametrize(
    "text",
    [
        "{n}\n017\n{r}\n",
        "{n}\n-1\n{r}\n",
        "{n}\n17\n",
        "\n17\n{r}\n",
        "{n}\n17\n{r}\nmore\n",
        "x\n",
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    root = base64.b64encode(ROOT).decode()
    with pytest.raises(ValueError):
        read_checkpoint(read_note(sign(text.format(n=NAME, r=root), NAME, KEY)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        NAME,
        GO_CHECKSUM_DATABASE.replace("033de0ae", "033de0af"),
        GO_CHECKSUM_DATABASE.replace("sum.", "sun."),
        f"{NAME}+00000000+{base64.b64encode(bytes(33)).decode()}",
    ],
)
def test_what_is_no_verifier_key_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_verifier_key(text)
