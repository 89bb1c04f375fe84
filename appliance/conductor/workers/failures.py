"""What a worker's refusal means: from its status, headers and body to one `WorkerError`.

Pure. Every back-end words a full context differently, so their texts are matched here and nowhere
else; none of it is repeated. Sources: the error answers of llama.cpp server, vLLM, SGLang,
TensorRT-LLM, Ollama, and the OpenAI API.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, TypeGuard

import orjson

from conductor.core import Failure
from conductor.errors import WorkerError
from conductor.workers.headers import FAILURE, REASON

_MAX_RETRY_AFTER_S = 24 * 3600.0
_WORD = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}\Z")

_OVERFLOW = re.compile(
    r"context[ _](?:length|size|window)|max_seq_len|max_num_tokens|max_model_len"
    r"|maximum (?:input|sequence|model) length|prompt is too long",
    re.IGNORECASE,
)
_WINDOW = re.compile(r"context (?:length|size|window)(?: is| of)? \(?([0-9]{1,9})", re.IGNORECASE)
_ASKED = re.compile(
    r"(?:requested(?: a total of)?|resulted in|has|contains(?: at least)?|input \(|request \()"
    r" ?([0-9]{1,9})",
    re.IGNORECASE,
)
_LOADING = re.compile(r"load(?:ing|ed)|starting|initiali[sz]ing|warming", re.IGNORECASE)
_UNSUPPORTED = re.compile(r"not supported|unsupported", re.IGNORECASE)


def refusal(
    status: int, headers: Mapping[str, str], body: bytes, *, egress: bool = False
) -> WorkerError:
    """The error that an answer with a status other than 200 stands for.

    `egress` tells that the egress process answered: only its headers may name the failure.
    """
    retry_after_s = _retry_after(headers)
    if egress and (named := _named(headers.get(FAILURE))) is not None:
        reason = headers.get(REASON, "")
        detail = reason if _WORD.match(reason) else f"status {status}"
        window = overflow_window(_error_of(body)) if named is Failure.CONTEXT_LENGTH else None
        return WorkerError(named, detail, retry_after_s=retry_after_s, window=window)
    return _classified(status, _error_of(body), retry_after_s)


def in_band(error: object, *, began: bool, egress: bool = False) -> WorkerError:
    """The error that an `{"error": ...}` in the middle of a stream stands for."""
    fields: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    named = _named(fields.get("failure")) if egress else None
    code = fields.get("code")
    status = code if isinstance(code, int) and 400 <= code <= 599 else 500
    found = _classified(status, fields, None)
    return WorkerError(
        named or found.failure, "error in the stream", began=began, window=found.window
    )


def overflow_window(error: Mapping[str, Any]) -> tuple[int, int] | None:
    """(context tokens, prompt tokens) as the worker stated them."""
    window, asked = error.get("n_ctx"), error.get("n_prompt_tokens")
    if _is_count(window) and _is_count(asked):
        return window, asked
    message = _message(error)
    stated, wanted = _WINDOW.search(message), _ASKED.search(message)
    return (int(stated[1]), int(wanted[1])) if stated and wanted else None


def _is_count(value: Any) -> TypeGuard[int]:
    """Of tokens: what a worker states is shown to the client, so it must be one."""
    return type(value) is int and 0 < value < 1_000_000_000


def _classified(status: int, error: Mapping[str, Any], retry_after_s: float | None) -> WorkerError:
    failure = _failure(status, error)
    window = overflow_window(error) if failure is Failure.CONTEXT_LENGTH else None
    return WorkerError(failure, f"status {status}", retry_after_s=retry_after_s, window=window)


def _failure(status: int, error: Mapping[str, Any]) -> Failure:
    if status == 429:
        return Failure.RATE_LIMITED
    if status in (401, 403):
        return Failure.AUTH
    if status in (400, 413, 422, 500) and _is_overflow(error):
        return Failure.CONTEXT_LENGTH
    if status in (503, 529):
        return Failure.LOADING if _LOADING.search(_message(error)) else Failure.OVERLOADED
    if status in (404, 405):
        return Failure.SERVER_ERROR  # our path and model name, not the client's: it may fail over
    if 400 <= status < 500:
        return Failure.BAD_REQUEST
    if status in (500, 501) and _UNSUPPORTED.search(_message(error)):
        return Failure.BAD_REQUEST  # llama.cpp's word for an image sent to a text model
    return Failure.SERVER_ERROR if status >= 500 else Failure.MALFORMED


def _is_overflow(error: Mapping[str, Any]) -> bool:
    return (
        error.get("type") == "exceed_context_size_error"
        or error.get("code") == "context_length_exceeded"
        or _OVERFLOW.search(_message(error)) is not None
    )


def _error_of(body: bytes) -> dict[str, Any]:
    """The error object, in whatever shape it came: nested, flat, a string, or plain text."""
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {"message": body[:2000].decode("utf-8", "replace")}
    if not isinstance(value, dict):
        return {}
    error = value.get("error", value)
    return error if isinstance(error, dict) else {"message": error}


def _message(error: Mapping[str, Any]) -> str:
    # FastAPI servers put it under `detail`.
    for key in ("message", "detail"):
        text = error.get(key)
        if isinstance(text, str):
            return text[:2000]
    return ""


def _named(name: object) -> Failure | None:
    return Failure(name) if isinstance(name, str) and name in set(Failure) else None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds from `Retry-After`: a number, or a date (RFC 9110, section 10.2.3)."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return min(float(text), _MAX_RETRY_AFTER_S)
    if not text:
        return None
    try:
        seconds = parsedate_to_datetime(text).timestamp() - time.time()
    except (ValueError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S)
