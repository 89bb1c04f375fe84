"""A person's approval lets exactly what was approved through, once, soon."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify.approvals import ApprovalBook
from conductor.declassify.approved import ApprovalRefused, mint, verify

ANNA = Ed25519PrivateKey.from_private_bytes(bytes(32))
BEA = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
APPROVERS = {"anna-key": ANNA.public_key()}
BODY = b'{"messages":[]}'
MATTER = ("approved-v1", BODY, "restricted+pii", "eu-frontier")


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5_000

    def __call__(self) -> int:
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        self.now_ns += int(seconds * 1e9)


def book(max_waiting: int = 10) -> tuple[ApprovalBook, Clock]:
    clock = Clock()
    return ApprovalBook(clock, max_waiting), clock


def approved(made: ApprovalBook, expires_s: float = 60) -> str:
    """The token of an approval that was accepted."""
    token = mint(ANNA, "anna-key", made.ask(*MATTER, expires_s), BODY)
    made.accept(token, APPROVERS)
    return token


def test_what_was_approved_goes_through_once() -> None:
    made, _ = book()
    assert made.take(*MATTER) is None
    approved(made)
    assert made.take(*MATTER) == "anna-key"
    assert made.take(*MATTER) is None


@pytest.mark.parametrize("place", range(4))
def test_anything_else_does_not_go_through(place: int) -> None:
    made, _ = book()
    approved(made)
    other = list(MATTER)
    other[place] = b"other" if place == 1 else "other"
    assert made.take(*other) is None  # type: ignore[arg-type]
    assert made.take(*MATTER) == "anna-key"


def test_an_approval_ends_with_its_time() -> None:
    made, clock = book()
    approved(made, expires_s=60)
    clock.sleep(60)
    assert made.take(*MATTER) is None


def test_asking_again_gives_no_more_time() -> None:
    made, clock = book()
    first = made.ask(*MATTER, 60)
    clock.sleep(59)
    assert made.ask(*MATTER, 60) == first
    clock.sleep(1)
    assert made.ask(*MATTER, 60).request != first.request


def test_a_used_or_expired_token_is_not_accepted_again() -> None:
    made, clock = book()
    token = approved(made)
    made.take(*MATTER)
    refused(made, token, "unknown")
    token = approved(made, expires_s=60)
    clock.sleep(61)
    refused(made, token, "unknown")


def test_a_token_from_before_a_restart_is_not_accepted() -> None:
    made, _ = book()
    token = mint(ANNA, "anna-key", made.ask(*MATTER, 60), BODY)
    after, _ = book()
    after.ask(*MATTER, 60)
    refused(after, token, "unknown")


def refused(made: ApprovalBook, token: str, reason: str) -> None:
    with pytest.raises(ApprovalRefused) as caught:
        made.accept(token, APPROVERS)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"label": "public"}, "unknown"),
        ({"destination": "us-frontier"}, "unknown"),
        ({"declassifier": "other-v1"}, "unknown"),
        ({"request": "0" * 16}, "unknown"),
    ],
)
def test_an_approval_of_something_that_nobody_asked_for_is_refused(
    change: dict[str, str], reason: str
) -> None:
    made, _ = book()
    approval = replace(made.ask(*MATTER, 60), **change)
    refused(made, mint(ANNA, "anna-key", approval, BODY), reason)
    assert made.waiting()


@pytest.mark.parametrize(
    ("key", "name", "reason"),
    [(BEA, "anna-key", "signature"), (BEA, "bea-key", "key"), (ANNA, "bea-key", "key")],
)
def test_only_an_approver_of_the_declassifier_can_approve(
    key: Ed25519PrivateKey, name: str, reason: str
) -> None:
    made, _ = book()
    refused(made, mint(key, name, made.ask(*MATTER, 60), BODY), reason)
    assert made.take(*MATTER) is None


def test_nobody_signs_for_bytes_that_they_were_not_shown() -> None:
    made, _ = book()
    with pytest.raises(ApprovalRefused) as caught:
        mint(ANNA, "anna-key", made.ask(*MATTER, 60), BODY + b" ")
    assert caught.value.reason == "body"


@given(st.data())
def test_a_token_with_any_character_changed_is_refused(data: st.DataObject) -> None:
    made, _ = book()
    token = mint(ANNA, "anna-key", made.ask(*MATTER, 60), BODY)
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("Aa0-_.~ ") | st.characters())
    if letter != token[place]:
        with pytest.raises(ApprovalRefused):
            verify(token[:place] + letter + token[place + 1 :], APPROVERS)


@given(st.text())
def test_text_that_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ApprovalRefused):
        verify(text, APPROVERS)


def test_a_full_book_makes_room_without_losing_what_was_approved() -> None:
    made, _ = book(max_waiting=2)
    approved(made)
    for number in range(5):
        made.ask("approved-v1", str(number).encode(), "restricted", "eu", 60)
    assert len(made.waiting()) == 1
    assert made.take(*MATTER) == "anna-key"


def test_a_book_full_of_approvals_loses_the_oldest() -> None:
    made, _ = book(max_waiting=1)
    approved(made)
    made.ask("approved-v1", b"new", "restricted", "eu", 60)
    assert made.take(*MATTER) is None
    assert len(made.waiting()) == 1
