"""A person's approval lets exactly what was approved through, once, soon."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from conductor.declassify import approvals
from conductor.declassify.approvals import ApprovalBook, Matter, keys_of
from conductor.declassify.approved import Approval, ApprovalRefused, mint, verify
from conductor.policy.activation import Approver

ANNA = Ed25519PrivateKey.from_private_bytes(bytes(32))
BEA = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
APPROVERS = {"anna-key": ANNA.public_key()}
BODY = b'{"messages":[]}'
MATTER = Matter.of("approved-v1", BODY, "restricted+pii", "eu-frontier")
KEYS = {"anna-key": ANNA.public_key().public_bytes_raw()}


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
    token = mint(ANNA, "anna-key", made.ask(MATTER, BODY, expires_s), BODY)
    made.accept(made.check(token, APPROVERS))
    return token


def ask(made: ApprovalBook, body: bytes, label: str = "restricted", to: str = "eu") -> Approval:
    return made.ask(Matter.of("approved-v1", body, label, to), body, 60)


def test_what_was_approved_goes_through_once() -> None:
    made, _ = book()
    assert made.take(MATTER, KEYS) is None
    approved(made)
    assert made.take(MATTER, KEYS) == "anna-key"
    assert made.take(MATTER, KEYS) is None


@pytest.mark.parametrize("place", range(4))
def test_anything_else_does_not_go_through(place: int) -> None:
    made, _ = book()
    approved(made)
    other = [*MATTER]
    other[place] = "other"
    assert made.take(Matter(*other), KEYS) is None
    assert made.take(MATTER, KEYS) == "anna-key"


def test_an_approval_ends_with_its_time() -> None:
    made, clock = book()
    approved(made, expires_s=60)
    clock.sleep(60)
    assert made.take(MATTER, KEYS) is None


def test_asking_again_gives_no_more_time() -> None:
    made, clock = book()
    first = made.ask(MATTER, BODY, 60)
    clock.sleep(59)
    assert made.ask(MATTER, BODY, 60) == first
    clock.sleep(1)
    assert made.ask(MATTER, BODY, 60).request != first.request


def test_a_used_or_expired_token_is_not_accepted_again() -> None:
    made, clock = book()
    token = approved(made)
    made.take(MATTER, KEYS)
    refused(made, token, "unknown")
    token = approved(made, expires_s=60)
    clock.sleep(61)
    refused(made, token, "unknown")


def test_a_token_from_before_a_restart_is_not_accepted() -> None:
    made, _ = book()
    token = mint(ANNA, "anna-key", made.ask(MATTER, BODY, 60), BODY)
    after, _ = book()
    after.ask(MATTER, BODY, 60)
    refused(after, token, "unknown")


def refused(made: ApprovalBook, token: str, reason: str) -> None:
    with pytest.raises(ApprovalRefused) as caught:
        made.check(token, APPROVERS)
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
    approval = replace(made.ask(MATTER, BODY, 60), **change)
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
    refused(made, mint(key, name, made.ask(MATTER, BODY, 60), BODY), reason)
    assert made.take(MATTER, KEYS) is None


def test_nobody_signs_for_bytes_that_they_were_not_shown() -> None:
    made, _ = book()
    with pytest.raises(ApprovalRefused) as caught:
        mint(ANNA, "anna-key", made.ask(MATTER, BODY, 60), BODY + b" ")
    assert caught.value.reason == "body"


@given(st.data())
def test_a_token_with_any_character_changed_is_refused(data: st.DataObject) -> None:
    made, _ = book()
    token = mint(ANNA, "anna-key", made.ask(MATTER, BODY, 60), BODY)
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
        ask(made, str(number).encode())
    assert len(made.waiting()) == 1
    assert made.take(MATTER, KEYS) == "anna-key"


def test_a_book_full_of_approvals_loses_the_oldest() -> None:
    made, _ = book(max_waiting=1)
    approved(made)
    ask(made, b"new")
    assert made.take(MATTER, KEYS) is None
    assert len(made.waiting()) == 1


# -- keys that change --------------------------------------------------------------------------


@pytest.mark.parametrize("now", [{}, {"anna-key": BEA.public_key().public_bytes_raw()}])
def test_an_approval_under_a_key_that_counts_no_more_is_void(now: dict[str, bytes]) -> None:
    made, _ = book()
    approved(made)
    assert made.take(MATTER, now) is None
    assert made.take(MATTER, KEYS) is None, "it does not come back with the key"
    assert made.waiting() == []


def test_the_keys_that_count_are_those_of_the_named() -> None:
    people = [Approver("anna-key", b"a" * 32), Approver("bea-key", b"b" * 32)]
    assert keys_of(people, ("bea-key", "gone")) == {"bea-key": b"b" * 32}


def test_what_was_checked_counts_only_once_it_is_accepted_and_while_it_waits() -> None:
    made, clock = book()
    signed = made.check(mint(ANNA, "anna-key", made.ask(MATTER, BODY, 60), BODY), APPROVERS)
    assert made.take(MATTER, KEYS) is None
    clock.sleep(60)
    with pytest.raises(ApprovalRefused, match="unknown"):
        made.accept(signed)


# -- floods ------------------------------------------------------------------------------------


def test_a_flood_of_one_kind_pushes_out_only_its_own() -> None:
    made, _ = book(max_waiting=1000)
    others = [ask(made, b"x", label="public"), ask(made, b"x", to="us")]
    flood = [ask(made, str(number).encode()) for number in range(100)]
    assert made.waiting() == [*others, *flood[-approvals.MAX_ALIKE :]]


def test_what_a_person_reads_or_has_approved_is_not_pushed_out() -> None:
    made, _ = book(max_waiting=1000)
    approved(made)
    read = ask(made, b"read")
    assert made.show(read) == b"read"
    for number in range(50):
        ask(made, str(number).encode())
    assert made.find(read.request) == read
    assert made.take(MATTER, KEYS) == "anna-key"


def test_long_bodies_give_way_before_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approvals, "MAX_WAITING_BYTES", 100)
    made, _ = book(max_waiting=1000)
    small = ask(made, b"small", label="public")
    long = [ask(made, bytes([number]) * 40) for number in range(5)]
    assert made.waiting() == [small, *long[-2:]]


def test_what_is_approved_is_shown_no_more() -> None:
    made, _ = book()
    waiting = made.ask(MATTER, BODY, 60)
    approved(made)
    assert made.show(waiting) is None and made.find(waiting.request) == waiting
