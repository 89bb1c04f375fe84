"""The request suite, through the socket that applications use."""

from __future__ import annotations

import pytest
from box import MODEL, RUN, VENDOR_LOG, answering, ask, call, content, ready, until

IBAN = "IT60 X054 2811 1010 0000 0123 456"


def test_the_appliance_becomes_ready() -> None:
    until(ready, 60)
    # It began before there was a permit key, and begins again.
    until(lambda: answering("conductor-egress.service"), 60)


def test_an_ordinary_question_is_answered() -> None:
    assert content(ask("Name one planet that has rings."))


def test_a_worker_can_be_named() -> None:
    assert content(ask("Name a prime number.", "own"))


@pytest.mark.skipif(not MODEL.exists(), reason="the small model was not pulled")
def test_the_embedded_model_answers_without_a_network() -> None:
    until(lambda: (RUN / "workers/smollm2-135m.sock").exists(), 60)
    until(lambda: ask("Say yes.", "smollm2-135m", max_tokens=4).status == 200, 30)


def test_the_vendor_is_reached_through_egress_with_its_key_in_nobody_elses_hands() -> None:
    assert content(ask("How high is the tower of Pisa?", "vendor"))
    assert b"tower of Pisa" in VENDOR_LOG.read_bytes()


def test_an_account_number_is_answered_and_does_not_leave() -> None:
    assert content(ask(f"Write one sentence asking to pay to {IBAN}.", "conductor-quality"))
    refused = ask(f"Pay to {IBAN}.", "vendor")
    assert refused.status == 403, refused
    sent = VENDOR_LOG.read_bytes()
    assert IBAN.encode() not in sent
    assert IBAN.replace(" ", "").encode() not in sent


def test_an_answer_streams() -> None:
    answer = ask("Count to three.", "own", stream=True)
    assert answer.text.rstrip().endswith("data: [DONE]")


def test_a_wrong_key_is_turned_away() -> None:
    assert call("GET", "/v1/models", key="ck-wrong").status == 401


def test_metrics_and_administration_have_sockets_of_their_own() -> None:
    assert "conductor_" in call("GET", "/metrics", at="metrics").text
    assert call("GET", "/metrics").status in (401, 404)
    assert call("GET", "/v1/policy", at="admin").status == 200
    assert call("GET", "/v1/policy").status in (401, 404)
