"""Logs: readable, in one form for everybody, and without a word of content or a secret."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from conductor.errors import WorkerError
from conductor.logs import (
    MASK,
    REFUSED,
    Scrubber,
    StandardLibraryHandler,
    configure,
    error_name,
)

SECRET_TEXTS = [
    "sk-proj-abcDEF1234567890abcd",
    "AKIAIOSFODNN7EXAMPLE",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "Authorization: Bearer abc.def-ghi_jkl",
    "https://user:hunter2pass@host/path",
    "GET /v1?key=AbCdEfGh&x=1",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEabc\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\nMIIE cut off",
]
LEAKS = ["sk-proj", "AKIA", "ghp_", "eyJ", "abc.def", "hunter2", "AbCdEfGh", "MIIE"]


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    level = root.level
    out = io.StringIO()
    configure("json", "debug", out, secrets=["correct-horse", "correct"])
    yield out
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()
    root.setLevel(level)
    for handler in root.handlers[:]:
        if isinstance(handler, StandardLibraryHandler):
            root.removeHandler(handler)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object_with_time_level_and_event(stream: io.StringIO) -> None:
    structlog.get_logger().info("request_done", status=200, label="internal+pii")
    (line,) = lines(stream)
    assert line["event"] == "request_done" and line["level"] == "info"
    assert line["status"] == 200 and line["label"] == "internal+pii"
    assert line["ts"].endswith("Z")


def test_lines_below_the_level_are_not_written() -> None:
    out = io.StringIO()
    configure("json", "warning", out)
    structlog.get_logger().info("quiet")
    structlog.get_logger().warning("loud")
    assert [line["event"] for line in lines(out)] == ["loud"]


async def test_the_request_id_stays_with_its_task(stream: io.StringIO) -> None:
    async def request(id: str) -> None:
        structlog.contextvars.bind_contextvars(request_id=id)
        await asyncio.sleep(0)
        structlog.get_logger().info("step", of=id)

    await asyncio.gather(*(asyncio.create_task(request(f"r{n}")) for n in range(20)))
    assert all(line["request_id"] == line["of"] for line in lines(stream))


@pytest.mark.parametrize(
    "key", ["body", "prompt", "messages", "content", "Content", "API-Key", "authorization"]
)
def test_fields_that_could_hold_a_body_are_refused_at_any_depth(
    stream: io.StringIO, key: str
) -> None:
    structlog.get_logger().info("x", **{key: "canary"}, nested=[{"deeper": {key: ["canary"]}}])
    assert "canary" not in stream.getvalue()
    assert lines(stream)[0][key] == REFUSED


@pytest.mark.parametrize("text", SECRET_TEXTS)
@pytest.mark.parametrize("format", ["json", "console"])
def test_secrets_are_masked_in_values_keys_and_events(text: str, format: Any) -> None:
    out = io.StringIO()
    configure(format, "info", out)
    log = structlog.get_logger()
    log.info(" ".join(["before", text]), field=text, many=(text, {"k": text}), **{text: 1})
    for leak in LEAKS:
        assert leak not in out.getvalue()
    assert MASK in out.getvalue()


def test_known_secrets_are_masked_whole_wherever_they_stand(stream: io.StringIO) -> None:
    structlog.get_logger().info("x", url="/correct-horse/y", value="correct")
    assert "correct" not in stream.getvalue() and "horse" not in stream.getvalue()


def test_of_an_error_only_the_type_and_place_are_told(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    try:
        raise ConnectionError("canary at 10.0.0.7")
    except ConnectionError as error:
        log.warning("attempt_failed", reason=error)
        log.exception("attempt_failed")
        log.error("attempt_failed", exc_info=error)
    assert "canary" not in stream.getvalue() and "10.0.0.7" not in stream.getvalue()
    assert lines(stream)[0]["reason"] == "ConnectionError"
    for line in lines(stream)[1:]:
        assert line["error"] == "ConnectionError"
        assert line["at"].startswith("test_logs.py:")
    assert error_name(ValueError("canary")) == "ValueError"


def test_objects_and_bytes_are_named_by_type_not_shown(stream: io.StringIO) -> None:
    structlog.get_logger().info("x", raw=b"canary", thing=WorkerError("canary"), other=object())  # type: ignore[arg-type]
    (line,) = lines(stream)
    assert "canary" not in stream.getvalue()
    assert (line["raw"], line["thing"], line["other"]) == ("[bytes]", "WorkerError", "[object]")


def test_a_value_can_forge_no_line_and_drive_no_terminal() -> None:
    for format in ("json", "console"):
        out = io.StringIO()
        configure(format, "info", out)  # type: ignore[arg-type]
        structlog.get_logger().info("x\ny", id="a\n2026 [info] forged\x1b[2J\x9b2J\u2028z")
        assert len(out.getvalue().splitlines()) == 1
        assert "\x1b" not in out.getvalue() and "\x9b" not in out.getvalue()


def test_long_values_are_cut(stream: io.StringIO) -> None:
    structlog.get_logger().info("x", id="i" * 5000)
    assert len(stream.getvalue()) < 1300


def test_a_library_line_keeps_its_template_and_loses_its_arguments(stream: io.StringIO) -> None:
    logger = logging.getLogger("aiohttp.server")
    try:
        raise KeyError("canary")
    except KeyError:
        logger.exception("Error handling request from %s\nmore canary", "canary")
    (line,) = lines(stream)
    assert line["event"] == "Error handling request from %s"
    assert (line["logger"], line["level"], line["error"]) == ("aiohttp.server", "error", "KeyError")
    assert "canary" not in stream.getvalue()


async def test_a_task_that_failed_unseen_is_told_without_its_exception(
    stream: io.StringIO,
) -> None:
    context = {
        "message": "Task exception was never retrieved",
        "exception": ValueError("canary"),
        "future": asyncio.get_running_loop().create_future(),
    }
    asyncio.get_running_loop().call_exception_handler(context)
    (line,) = lines(stream)
    assert line["logger"] == "asyncio" and line["error"] == "ValueError"
    assert "canary" not in stream.getvalue()


def test_there_is_no_access_log(stream: io.StringIO) -> None:
    logging.getLogger("aiohttp.access").warning("GET /?secret")
    assert stream.getvalue() == ""


def test_configuring_again_replaces_and_does_not_double(stream: io.StringIO) -> None:
    again = io.StringIO()
    configure("json", "info", again)
    logging.getLogger("asyncio").warning("once")
    assert stream.getvalue() == "" and len(lines(again)) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=5))
def test_scrubbing_never_fails_and_leaves_no_control_character(values: dict[str, Any]) -> None:
    scrubbed = Scrubber(["needle"])(None, "info", dict(values))

    def check(value: Any) -> None:
        if isinstance(value, str):
            assert not any(ord(c) < 32 for c in value)
        elif isinstance(value, dict):
            for key, item in value.items():
                check(key)
                check(item)
        elif isinstance(value, list):
            for item in value:
                check(item)

    check(scrubbed)
