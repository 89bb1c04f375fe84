"""Logging: one structured line per event, as JSON or for a terminal, without content or secrets.

Three rules hold for every line, whoever writes it: fields that could hold a body are refused,
known secrets and things that look like one are masked, and of a foreign error only the type is
told. A foreign library's line keeps its template only: its arguments may carry anything.

Use `structlog.get_logger()` and name the event, in one word or several joined by `_`, with its
facts as fields. `api/middleware.py` puts the request id on every line of its request.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, TextIO, cast

import orjson
import structlog

if TYPE_CHECKING:
    from conductor.settings import LogFormat, LogLevel

REFUSED = "[refused]"
MASK = "[secret]"
_MAX_VALUE = 1024

_REFUSED_KEYS = frozenset(
    {
        # content
        "body",
        "prompt",
        "prompts",
        "message",
        "messages",
        "content",
        "text",
        "question",
        "answer",
        "arguments",
        "input",
        "output",
        "completion",
        "subtask",
        "instruction",
        # credentials
        "headers",
        "cookie",
        "cookies",
        "authorization",
        "api_key",
        "apikey",
        "password",
        "secret",
        "token",
        "permit",
    }
)

_SECRETS = re.compile(
    r"""
    -----BEGIN\ [A-Z ]*PRIVATE\ KEY-----.*?(?:-----END\ [A-Z ]*PRIVATE\ KEY-----|\Z)
    | \beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*              # a JSON web token
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b
    | \bgh[pousr]_\w{20,} | \bgithub_pat_\w{20,} | \bglpat-[\w-]{16,}
    | \bxox[a-z]-[\w-]{10,} | \bAIza[\w-]{30,}
    | \bsk-[\w-]{12,}
    | (?i:\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}
    | (?i:\b(?:api[_-]?key|key|token|secret|password)=)[^\s&"']{4,}
    | (?<=://)[^\s/:@]+:[^\s/@]+(?=@)                # user and password in a URL
    """,
    re.VERBOSE | re.DOTALL,
)

# Line breaks would forge a line, escape sequences drive the reader's terminal.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def configure(
    format: LogFormat = "json",
    level: LogLevel = "info",
    stream: TextIO | None = None,
    *,
    secrets: Iterable[str] = (),
) -> None:
    """Set up structlog and route the standard library's loggers through it.

    `stream` defaults to standard error. `secrets` are exact values that must never be written.
    May be called again; the last call holds.
    """
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="ts"),
            name_errors,
            Scrubber(secrets),
            _renderer(format),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(
            file=cast(TextIO, _Lossy(stream or sys.stderr))
        ),
        cache_logger_on_first_use=False,
    )
    _route_standard_library()


def error_name(error: BaseException) -> str:
    """The type's name and no more: texts of foreign errors hold addresses, keys and prompts."""
    return type(error).__name__


def name_errors(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace exceptions by their type's name, and `exc_info` by that and where it was raised."""
    error = event.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, tuple):
        error = error[1]
    event.pop("stack_info", None)
    if isinstance(error, BaseException):
        event["error"] = error_name(error)
        event["at"] = _where(error)
    for key, value in event.items():
        if isinstance(value, BaseException):
            event[key] = error_name(value)
    return event


class Scrubber:
    """Refuses fields that could hold a body and masks secrets in all others."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        # Longest first, or a secret that begins another would leave the other's rest.
        known = sorted((secret for secret in secrets if secret), key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, known))) if known else None

    def __call__(
        self, _: Any, __: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        return self._mapping(event)

    def _mapping(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {
            self._text(str(key)): REFUSED if _refused(str(key)) else self._value(value)
            for key, value in values.items()
        }

    def _value(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(item) for item in value]
        # Bytes are a body, and the repr of an object shows its fields.
        return f"[{type(value).__name__}]"

    def _text(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _SECRETS.sub(MASK, text)
        if len(text) > _MAX_VALUE:
            text = text[:_MAX_VALUE] + "[cut]"
        return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class _Lossy(io.TextIOBase):
    """A stream whose full disk, or reader that has gone, costs lines and not the request that
    they are about. What must not be lost is in the audit log."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


class StandardLibraryHandler(logging.Handler):
    """Passes a foreign record on as one structured line: logger, template, type of the error."""

    def emit(self, record: logging.LogRecord) -> None:
        template = record.msg if isinstance(record.msg, str) else type(record.msg).__name__
        error = record.exc_info[1] if record.exc_info else None
        structlog.get_logger().log(
            record.levelno,
            template.partition("\n")[0][:200],
            logger=record.name,
            **({} if error is None else {"exc_info": error}),
        )


def _refused(key: str) -> bool:
    return key.lower().replace("-", "_") in _REFUSED_KEYS


def _where(error: BaseException) -> str:
    """`file:line` of the innermost frame: enough to find it, and no value in it."""
    trace = error.__traceback__
    if trace is None:
        return "?"
    while trace.tb_next is not None:
        trace = trace.tb_next
    name = trace.tb_frame.f_code.co_filename.rpartition("/")[2]
    return f"{name}:{trace.tb_lineno}"


def _renderer(format: LogFormat) -> Any:
    if format == "console":
        return structlog.dev.ConsoleRenderer(colors=False)
    return structlog.processors.JSONRenderer(serializer=_dumps)


def _dumps(event: Mapping[str, Any], **_: Any) -> str:
    return orjson.dumps(event, default=str).decode()


def _route_standard_library() -> None:
    root = logging.getLogger()
    for handler in root.handlers[:]:
        if isinstance(handler, StandardLibraryHandler):
            root.removeHandler(handler)
    root.addHandler(StandardLibraryHandler())
    root.setLevel(logging.WARNING)
    # An access log repeats paths and addresses; requests are logged by the API itself.
    logging.getLogger("aiohttp.access").disabled = True
