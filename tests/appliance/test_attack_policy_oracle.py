"""The judge of the attacks sees what it is to see: else nothing would ever arrive."""

from __future__ import annotations

import json

import pytest

from support.attacks_by_client import DEALT_OUT
from support.attacks_disguises import DISGUISES
from support.attacks_oracle import Oracle, carriers
from support.attacks_secrets import KINDS, Mint
from support.places import PLACES, halves


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_secret_is_seen_in_every_disguise_and_place(disguise: str) -> None:
    mint, oracle, bodies = Mint(2), Oracle(), []
    names = []
    for number, place in enumerate(PLACES):
        secret = mint.make(KINDS[number % len(KINDS)])
        text = DISGUISES[disguise](secret.text)
        if place in DEALT_OUT:
            oracle.seek_together(place, *halves(text))
        else:
            oracle.seek(place, secret.text, text, *carriers(PLACES[place], text))
        bodies.append(json.dumps(PLACES[place](text)).encode())
        names.append(place)
    assert oracle.found(bodies) == sorted(names)


@pytest.mark.parametrize("kind", KINDS)
def test_half_of_a_secret_is_seen_and_its_twin_is_not(kind: str) -> None:
    mint, oracle = Mint(3), Oracle()
    secret, twin = mint.make(kind), mint.make(kind)
    oracle.seek(kind, secret.text, *secret.parts)
    for part in secret.parts:
        assert oracle.found([f'{{"a": "so {part} is it"}}'.encode()]) == [kind]
    assert oracle.found([f'{{"a": "so {twin.text[5:]} is it"}}'.encode()]) == []


def test_pieces_are_seen_together_in_one_request_alone() -> None:
    oracle = Oracle()
    oracle.seek_together("halves", "IT60X0542811", "101000000123456")
    apart = [b'{"a": "IT60 X054 2811"}', b'{"a": "101000000123456"}']
    assert oracle.found(apart) == []
    assert oracle.found([b'{"a": "IT60X0542811", "b": ["101000000123456"]}']) == ["halves"]


def test_minted_secrets_are_valid_and_never_the_same() -> None:
    mint = Mint(4)
    made = [mint.make(kind).text for kind in KINDS for _ in range(200)]
    assert len(set(made)) == len(made)
