"""Who is calling, from whatever stands in the header; and how many calls a key has under way."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conductor.api import keys
from conductor.api.keys import MAX_KEY_BYTES, KeyRing
from conductor.core import SecretRef
from conductor.errors import InvalidKey, RateLimited, StartError
from conductor.secretrefs import Secret
from conductor.settings import Key

SECRETS = {"one": "sk-one", "two": "sk-two", "utf": "schlüssel-😀"}
RAW = b"\xff\xfe-not-utf-8"


def key(name: str, **more: object) -> Key:
    return Key(name, SecretRef("env", name), None, **more)  # type: ignore[arg-type]


def resolve(ref: SecretRef) -> Secret:
    return Secret(SECRETS[ref.name])


@pytest.fixture
def ring() -> KeyRing:
    hashed = Key("raw", None, hashlib.sha256(RAW).hexdigest())
    return KeyRing([key("one", max_in_flight=2), key("two"), key("utf"), hashed], resolve)


def as_received(value: bytes) -> str:
    """A header's value as the server decodes it."""
    return value.decode("utf-8", "surrogateescape")


@pytest.mark.parametrize(
    ("header", "who"),
    [
        (b"Bearer sk-one", "one"),
        (b"bearer sk-two", "two"),
        (b"BEARER   sk-two  ", "two"),
        ("Bearer schlüssel-😀".encode(), "utf"),
        (b"Bearer " + RAW, "raw"),
    ],
)
def test_a_key_is_known_by_its_bytes(ring: KeyRing, header: bytes, who: str) -> None:
    assert ring.principal(as_received(header)).id == who


@pytest.mark.parametrize(
    "header",
    [
        None,
        b"",
        b"Bearer",
        b"Bearer ",
        b"Bearer    ",
        b"sk-one",
        b"Basic sk-one",
        b"Bearersk-one",
        b"Bearer\tsk-one",
        b"Bearer sk-One",
        b"Bearer sk-on",
        b"Bearer sk-one2",
        b"Bearer sk-one,Bearer sk-two",
        b"Bearer sk-one sk-two",
        b"Bearer Bearer sk-one",
        b"Bearer sk-one\0",
        "Bearer schlussel-😀".encode(),
        "Bearer schlüssel-😀".encode("utf-16"),
        b"Bearer \xff",
        b"Bearer " + hashlib.sha256(b"sk-one").hexdigest().encode(),
        b"Bearer " + b"x" * (MAX_KEY_BYTES + 1),
        b"Bearer " + b"x" * 1_000_000,
    ],
)
def test_anything_else_is_nobody(ring: KeyRing, header: bytes | None) -> None:
    with pytest.raises(InvalidKey) as refused:
        ring.principal(None if header is None else as_received(header))
    assert refused.value.status == 401
    assert refused.value.headers["WWW-Authenticate"] == "Bearer"


@given(st.binary(max_size=600))
def test_no_bytes_in_the_header_do_anything_but_be_refused(value: bytes) -> None:
    ring = KeyRing([key("one")], resolve)
    for header in (value, b"Bearer " + value):
        try:
            found = ring.principal(as_received(header))
        except InvalidKey as refused:
            assert str(refused) == str(InvalidKey())
        else:
            assert found.id == "one" and value.strip() == b"sk-one"


@pytest.mark.parametrize("header", ["Bearer sk-one", "Bearer sk-utf", "Bearer nobody"])
def test_every_stored_hash_is_compared_whoever_asks(
    ring: KeyRing, header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    class Counting:
        @staticmethod
        def compare_digest(a: bytes, b: bytes) -> bool:
            seen.append((len(a), len(b)))
            return hmac.compare_digest(a, b)

    monkeypatch.setattr(keys, "hmac", Counting)
    with suppress(InvalidKey):
        ring.principal(header)
    assert seen == [(32, 32)] * 4


def test_no_secret_stays_in_the_ring(ring: KeyRing) -> None:
    def held(value: object) -> Iterator[str]:
        for item in vars(value).values():
            yield repr(item)

    assert not any(secret in text for text in held(ring) for secret in SECRETS.values())


def test_two_keys_with_one_secret_are_refused_at_start() -> None:
    same = Key("other", None, hashlib.sha256(b"sk-one").hexdigest())
    with pytest.raises(StartError) as refused:
        KeyRing([key("one"), key("two"), same], resolve)
    assert "'one'" in str(refused.value) and "'other'" in str(refused.value)
    assert "sk-one" not in str(refused.value)


def test_a_key_without_a_secret_is_a_fault_and_not_an_open_door() -> None:
    with pytest.raises(ValueError, match="neither"):
        KeyRing([Key("bare", None, None)], resolve)


def test_a_key_has_so_many_places_and_gets_each_of_them_back(ring: KeyRing) -> None:
    one, two = ring.principal("Bearer sk-one"), ring.principal("Bearer sk-two")
    with ring.admitted(one), ring.admitted(one):
        with pytest.raises(RateLimited) as refused:
            with ring.admitted(one):
                raise AssertionError("nobody gets in")
        assert refused.value.status == 429 and refused.value.headers["Retry-After"] == "1"
        with ring.admitted(two):  # another key is no matter
            pass
    for _ in range(5):
        with pytest.raises(ZeroDivisionError), ring.admitted(one):
            raise ZeroDivisionError
    with ring.admitted(one), ring.admitted(one):
        pass
