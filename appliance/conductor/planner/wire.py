"""What `serve` and the planner process say to each other, as JSON, read strictly at both ends.

    POST /v1/plan    a request: the fields of `PlanRequest`, each candidate flat
                     an answer: {"plan": text, "engine": name, "alternates": [ordinal, ...]}
                     a refusal: {"error": word}, the word from `Refusal`

Both ends check types, ranges and unknown keys: the peer may be of another version, or broken.
Messages say which field is wrong and never repeat a value.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from enum import StrEnum
from typing import Any, cast, get_args

import orjson

from conductor.core import Candidate, Card, CardSource, PlanRequest, Preference, Price
from conductor.errors import PlanError
from conductor.plan.language import MAX_STEPS, MAX_WORKERS, parse, show
from conductor.plan.validate import PlanPool, validate
from conductor.planner.engine import Planned

MAX_QUESTION_CHARS = 32_768
"""An engine sees the two ends of a longer question: enough to tell what is asked."""
MAX_REQUEST_BYTES = 1024 * 1024
"""The longest question, escaped, and the largest pool fit twice over."""
MAX_REPLY_BYTES = 16 * 1024
_MAX_DOMAINS = 64
_MAX_NAME = 64
_CUT = "\n[...]\n"
_ENGINE = re.compile(r"[a-z0-9._-]{1,32}")

Fields = dict[str, Any]


class Refusal(StrEnum):
    """Why the planner gives no plan."""

    INVALID = "invalid"  # 400: the request cannot be read
    UNPLANNABLE = "unplannable"  # 422: no plan is possible, for instance no candidate is left
    FAILED = "failed"  # 500: the engine broke
    LOADING = "loading"  # 503
    BUSY = "busy"  # 503


class WireError(ValueError):
    """A message that cannot be read; says which field, never what it held."""


def bounded(request: PlanRequest) -> PlanRequest:
    """The request as an engine may see it: the question cut to its ends, and valid Unicode."""
    question = request.question
    if len(question) > MAX_QUESTION_CHARS:
        half = (MAX_QUESTION_CHARS - len(_CUT)) // 2
        question = question[:half] + _CUT + question[-half:]
    question = question.encode("utf-8", "replace").decode()
    return replace(request, question=question, max_steps=min(request.max_steps, MAX_STEPS))


def encode_request(request: PlanRequest) -> bytes:
    """JSON of a request that `bounded` has passed."""
    fields = {
        "request_id": request.request_id,
        "question": request.question,
        "candidates": [_candidate_fields(candidate) for candidate in request.candidates],
        "preference": request.preference,
        "max_steps": request.max_steps,
        "one_step": request.one_step,
        "prompt_tokens": request.prompt_tokens,
    }
    return orjson.dumps(fields)


def decode_request(raw: bytes) -> PlanRequest:
    """Read a request; raises `WireError`."""
    fields = _object(raw)
    _only(fields, PlanRequest.__dataclass_fields__, "request")
    preference = _text(fields, "preference", _MAX_NAME)
    if preference not in get_args(Preference):
        raise WireError(f"'preference' must be one of {', '.join(get_args(Preference))}")
    return PlanRequest(
        request_id=_text(fields, "request_id", 512),
        question=_text(fields, "question", MAX_QUESTION_CHARS),
        candidates=tuple(_candidate(item) for item in _list(fields, "candidates", MAX_WORKERS)),
        preference=preference,  # type: ignore[arg-type]  # one of its literals
        max_steps=_whole(fields, "max_steps", 1, MAX_STEPS),
        one_step=_flag(fields, "one_step"),
        prompt_tokens=_whole(fields, "prompt_tokens", 0, 2**53),
    )


def encode_planned(planned: Planned) -> bytes:
    """JSON of an answer."""
    fields = {
        "plan": show(planned.plan),
        "engine": planned.engine,
        "alternates": planned.alternates,
    }
    return orjson.dumps(fields)


def decode_planned(raw: bytes) -> Planned:
    """Read an answer; raises `WireError`, or `PlanError` when its text is no plan."""
    fields = _object(raw)
    _only(fields, ("plan", "engine", "alternates"), "answer")
    engine = _text(fields, "engine", _MAX_NAME)
    if not _ENGINE.fullmatch(engine):
        raise WireError("'engine' is no engine name")
    alternates = _ordinals(fields, "alternates", MAX_WORKERS)
    return Planned(parse(_text(fields, "plan", MAX_REPLY_BYTES)), engine, alternates)


def refusal(raw: bytes) -> Refusal | None:
    """The word of a refusal; None when it has none that is known."""
    try:
        return Refusal(_object(raw).get("error", ""))
    except ValueError:
        return None


def check(planned: Planned, request: PlanRequest) -> Planned:
    """The same answer, if plan and stand-ins fit the request; raises `PlanError`."""
    validate(planned.plan, PlanPool.of(request))
    for ordinal in planned.alternates:
        if not 0 <= ordinal < len(request.candidates):
            raise PlanError("a stand-in is not among the candidates")
    return planned


def _candidate_fields(candidate: Candidate) -> Fields:
    return {
        "skill": dict(candidate.card.skill),
        "output_tokens_per_s": candidate.card.output_tokens_per_s,
        "source": candidate.card.source,
        "input_usd_per_mtok": candidate.price.input_usd_per_mtok,
        "output_usd_per_mtok": candidate.price.output_usd_per_mtok,
        "local": candidate.local,
        "context_tokens": candidate.context_tokens,
    }


_CANDIDATE = (
    "skill",
    "output_tokens_per_s",
    "source",
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "local",
    "context_tokens",
)


def _candidate(fields: Any) -> Candidate:
    if type(fields) is not dict:
        raise WireError("'candidates' must hold objects")
    _only(fields, _CANDIDATE, "candidate")
    source = fields.get("source")
    if source not in get_args(CardSource):
        raise WireError(f"'source' must be one of {', '.join(get_args(CardSource))}")
    speed = _amount(fields, "output_tokens_per_s")
    return Candidate(
        card=Card(_skill(fields), speed, cast(CardSource, source)),
        price=Price(_amount(fields, "input_usd_per_mtok"), _amount(fields, "output_usd_per_mtok")),
        local=_flag(fields, "local"),
        context_tokens=_whole(fields, "context_tokens", 0, 2**53),
    )


def _skill(fields: Fields) -> dict[str, float]:
    value = fields.get("skill")
    if type(value) is not dict or len(value) > _MAX_DOMAINS:
        raise WireError(f"'skill' must be an object of at most {_MAX_DOMAINS} domains")
    if any(len(name) > _MAX_NAME for name in value):
        raise WireError("'skill' has a domain with too long a name")
    return {name: _amount(value, name, shown="skill", highest=1.0) for name in value}


def _object(raw: bytes) -> Fields:
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise WireError("the body is not JSON") from None
    if type(value) is not dict:
        raise WireError("the body must be an object")
    return value


def _only(fields: Fields, known: Any, what: str) -> None:
    if set(fields) != set(known):
        raise WireError(f"a {what} has exactly these fields: {', '.join(known)}")


def _list(fields: Fields, name: str, longest: int) -> list[Any]:
    value = fields[name]
    if type(value) is not list or len(value) > longest:
        raise WireError(f"{name!r} must be a list of at most {longest}")
    return value


def _text(fields: Fields, name: str, longest: int) -> str:
    value = fields[name]
    if type(value) is not str or len(value) > longest:
        raise WireError(f"{name!r} must be a string of at most {longest} characters")
    return value


def _flag(fields: Fields, name: str) -> bool:
    value = fields[name]
    if type(value) is not bool:
        raise WireError(f"{name!r} must be true or false")
    return value


def _whole(fields: Fields, name: str, lowest: int, highest: int) -> int:
    value = fields[name]
    if type(value) is not int or not lowest <= value <= highest:
        raise WireError(f"{name!r} must be a whole number from {lowest} to {highest}")
    return value


def _amount(fields: Fields, name: str, *, shown: str = "", highest: float = 1e12) -> float:
    value = fields[name]
    if type(value) not in (int, float) or not (math.isfinite(value) and 0 <= value <= highest):
        raise WireError(f"{shown or name!r} must be a number from 0 to {highest:g}")
    return float(value)


def _ordinals(fields: Fields, name: str, count: int) -> tuple[int, ...]:
    values = _list(fields, name, count)
    if not all(type(value) is int and 0 <= value < count for value in values):
        raise WireError(f"{name!r} must hold ordinals below {count}")
    if len(set(values)) < len(values):
        raise WireError(f"{name!r} names an ordinal twice")
    return tuple(values)
