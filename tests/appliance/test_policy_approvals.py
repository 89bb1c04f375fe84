"""Whose signature counts, and for what."""

from __future__ import annotations

import dataclasses
import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from conductor.activation.approvals import (
    Approval,
    approve,
    approved_by,
    digest,
    read_approvals,
    written,
)
from conductor.errors import ConfigError

SHA = hashlib.sha256(b"a policy").hexdigest()
OTHER = hashlib.sha256(b"another").hexdigest()
ANNA, BERT, EVE = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
APPROVERS = {
    "anna": ANNA.public_key().public_bytes_raw(),
    "bert": BERT.public_key().public_bytes_raw(),
}


def signed(key: Ed25519PrivateKey, sha: str = SHA, revision: int = 5) -> Approval:
    return approve(key, sha, revision)


def forged(approval: Approval, key: Ed25519PrivateKey) -> Approval:
    """The signature of one under the name of another."""
    return dataclasses.replace(approval, key=approve(key, SHA, 5).key)


@pytest.mark.parametrize(
    ("approvals", "by"),
    [
        ([], ()),
        ([signed(ANNA)], ("anna",)),
        ([signed(BERT), signed(ANNA)], ("anna", "bert")),
        ([signed(ANNA), signed(ANNA)], ("anna",)),
        ([signed(EVE)], ()),
        ([signed(ANNA), signed(EVE)], ("anna",)),
        ([signed(ANNA, OTHER)], ()),
        ([signed(ANNA, revision=6)], ()),
        ([forged(signed(EVE), ANNA)], ()),
        ([forged(signed(EVE), ANNA), signed(ANNA)], ("anna",)),
    ],
)
def test_who_has_approved(approvals: list[Approval], by: tuple[str, ...]) -> None:
    assert approved_by(approvals, SHA, 5, APPROVERS) == by


def test_one_key_under_two_names_is_one_person() -> None:
    twice = {"anna": APPROVERS["anna"], "anna-again": APPROVERS["anna"]}
    assert approved_by([signed(ANNA)], SHA, 5, twice) == ("anna",)


def test_what_is_signed_is_bound_to_its_purpose() -> None:
    bare = Approval(signed(ANNA).key, ANNA.sign(bytes.fromhex(SHA)))
    assert approved_by([bare], SHA, 5, APPROVERS) == ()
    assert digest(SHA, 5) != digest(SHA, 6) != digest(OTHER, 6)


def test_a_file_of_approvals_is_read_back() -> None:
    approvals = (signed(ANNA), signed(BERT))
    assert read_approvals(written(approvals, SHA, 5), "f") == approvals


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"approvals": {}}',
        b'{"approvals": [1]}',
        b'{"approvals": [{"key": "k"}]}',
        b'{"approvals": [{"key": "k", "signature": "AA=="}]}',
        b'{"approvals": [{"key": 5, "signature": "?"}]}',
    ],
)
def test_a_file_that_is_none_is_refused(text: bytes) -> None:
    with pytest.raises(ConfigError):
        read_approvals(text, "f")
