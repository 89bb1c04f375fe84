"""What `serve` and the planner process say to each other, as JSON, read strictly at both ends.

    POST /v1/plan    a request: the fields of `PlanRequest`, each candidate flat
                     an answer: {"plan": text, "engine": name, "alternates": [ordinal, ...],
                                 "look": flag, "insight": null or the fields of `Insight`}
                     and, where its engine has them, "log_prob": number up to 0, "bundle": id
                     a refusal: {"error": word}, the word from `Refusal`

Both ends check types, ranges and unknown keys: the peer may be of another version, or broken.
Messages say which field is wrong and never repeat a value. A plan's text does not say which number
its first step has: both ends know from what was heard.
"""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any, cast, get_args

import orjson

from conductor.core import (
    VERBOSITY,
    Candidate,
    Card,
    CardSource,
    Heard,
    PlanRequest,
    Preference,
    Price,
)
from conductor.errors import PlanError
from conductor.plan.conclusion import READ_CHARS, ends
from conductor.plan.language import MAX_STEPS, MAX_TOTAL_STEPS, MAX_WORKERS, parse, show
from conductor.plan.validate import PlanPool, validate
from conductor.planner import fields as read
from conductor.planner import wireflow
from conductor.planner.engine import Insight, Planned
from conductor.planner.fields import Fields, WireError

__all__ = [
    "MAX_QUESTION_CHARS",
    "MAX_REPLY_BYTES",
    "MAX_REQUEST_BYTES",
    "Refusal",
    "WireError",
    "bounded",
    "check",
    "decode_planned",
    "decode_request",
    "encode_planned",
    "encode_request",
    "refusal",
]

MAX_QUESTION_CHARS = 32_768
"""An engine sees the two ends of a longer question: enough to tell what is asked."""
MAX_ANSWER_CHARS = READ_CHARS
"""Of each answer that was heard; its conclusion stands at one of the two ends that are kept."""
MAX_REQUEST_BYTES = 2 * 1024 * 1024
"""The longest question, the largest pool and the longest answers fit, with every character escaped
(about 1.4 MiB)."""
MAX_REPLY_BYTES = 32 * 1024
"""Five of the longest instructions, escaped, and insight into the largest pool fit (30 KB)."""
_MAX_DOMAINS = 64
_MAX_REQUEST_ID = 512
_MOST = 2**53
"""Largest whole number that every JSON reader keeps exact."""
_DOMAIN = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_ENGINE = re.compile(r"[a-z0-9._-]{1,32}")
_BUNDLE = re.compile(r"[0-9a-f]{64}")
_LEAST_LOG_PROB = -1e6


class Refusal(StrEnum):
    """Why the planner gives no plan."""

    INVALID = "invalid"  # 400: the request cannot be read
    UNPLANNABLE = "unplannable"  # 422: no plan is possible, for instance no candidate is left
    FAILED = "failed"  # 500: the engine broke
    LOADING = "loading"  # 503
    BUSY = "busy"  # 503


def bounded(request: PlanRequest) -> PlanRequest:
    """The request as an engine may see it: texts cut to their two ends, and valid Unicode."""
    return replace(
        request,
        question=_sendable(request.question, MAX_QUESTION_CHARS),
        max_steps=min(request.max_steps, MAX_STEPS),
        heard=tuple(
            replace(heard, answer=_sendable(heard.answer, MAX_ANSWER_CHARS))
            for heard in request.heard
        ),
    )


def _sendable(text: str, longest: int) -> str:
    return ends(text, longest).encode("utf-8", "replace").decode()


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
        "cost_weight": request.cost_weight,
        "heard": [asdict(heard) for heard in request.heard],
        "rounds_left": request.rounds_left,
        "calls_left": request.calls_left,
        "may_redact": request.may_redact,
        "flow": None if request.flow is None else wireflow.encode(request.flow),
    }
    return orjson.dumps(fields)


def decode_request(raw: bytes) -> PlanRequest:
    """Read a request; raises `WireError`."""
    fields = read.read_object(raw)
    read.only(fields, PlanRequest.__dataclass_fields__, "a request")
    preference = read.one_of(fields, "preference", get_args(Preference))
    candidates = tuple(map(_candidate, read.array(fields, "candidates", MAX_WORKERS)))
    heard = enumerate(read.array(fields, "heard", MAX_TOTAL_STEPS))
    return PlanRequest(
        request_id=read.text(fields, "request_id", _MAX_REQUEST_ID),
        question=read.text(fields, "question", MAX_QUESTION_CHARS),
        candidates=candidates,
        preference=cast(Preference, preference),
        max_steps=read.whole(fields, "max_steps", 1, MAX_STEPS),
        one_step=read.flag(fields, "one_step"),
        prompt_tokens=read.whole(fields, "prompt_tokens", 0, _MOST),
        cost_weight=read.amount(fields, "cost_weight"),
        heard=tuple(_heard(item, step, len(candidates)) for step, item in heard),
        rounds_left=read.whole(fields, "rounds_left", 0, MAX_TOTAL_STEPS),
        calls_left=read.whole(fields, "calls_left", 0, _MOST),
        may_redact=read.flag(fields, "may_redact"),
        flow=None if fields["flow"] is None else wireflow.decode(fields["flow"], len(candidates)),
    )


def encode_planned(planned: Planned) -> bytes:
    """JSON of an answer. Raises `TypeError` for what an engine filled with other than numbers."""
    fields: Fields = {
        "plan": show(planned.plan),
        "engine": planned.engine,
        "alternates": planned.alternates,
        "look": planned.look,
        "insight": None if planned.insight is None else asdict(planned.insight),
    }
    if planned.log_prob is not None:
        fields["log_prob"] = planned.log_prob
    if planned.bundle:
        fields["bundle"] = planned.bundle
    return orjson.dumps(fields)


def decode_planned(raw: bytes, first: int = 0) -> Planned:
    """Read an answer, whose plan's first step has the number `first`.

    Raises `WireError`, or `PlanError` when its text is no plan.
    """
    fields = read.read_object(raw)
    log_prob, bundle = fields.pop("log_prob", None), fields.pop("bundle", "")
    read.only(fields, ("plan", "engine", "alternates", "look", "insight"), "an answer")
    engine = read.text(fields, "engine", 32)
    if not _ENGINE.fullmatch(engine):
        raise WireError("'engine' is no engine name")
    return Planned(
        plan=parse(read.text(fields, "plan", MAX_REPLY_BYTES), first),
        engine=engine,
        alternates=read.ordinals(fields, "alternates", MAX_WORKERS),
        look=read.flag(fields, "look"),
        insight=None if fields["insight"] is None else _insight(fields["insight"]),
        log_prob=None if log_prob is None else _log_prob(log_prob),
        bundle=_bundle_id(bundle),
    )


def refusal(raw: bytes) -> Refusal | None:
    """The word of a refusal; None when it has none that is known."""
    try:
        return Refusal(read.read_object(raw).get("error", ""))
    except ValueError:
        return None


def check(planned: Planned, request: PlanRequest) -> Planned:
    """The same answer, if all of it fits the request; raises `PlanError`."""
    validate(planned.plan, PlanPool.of(request))
    for ordinal in planned.alternates:
        if not 0 <= ordinal < len(request.candidates):
            raise PlanError("a stand-in is not among the candidates")
    if planned.look:
        _check_look(planned, request)
    if planned.insight is not None:
        for numbers in (planned.insight.right, planned.insight.chosen):
            if len(numbers) != len(request.candidates):
                raise PlanError("insight has one number a candidate")
    return planned


def _check_look(planned: Planned, request: PlanRequest) -> None:
    if not planned.plan.calls:
        raise PlanError("a round that calls no worker is the last: there is nothing new to look at")
    if request.rounds_left == 0:
        raise PlanError("no round is left in which the answers could be looked at")
    if request.one_step:
        raise PlanError("the answer to this request can only be passed on, not looked at")


def _candidate_fields(candidate: Candidate) -> Fields:
    return {
        "skill": dict(candidate.card.skill),
        "output_tokens_per_s": candidate.card.output_tokens_per_s,
        "source": candidate.card.source,
        "verbosity": candidate.card.verbosity,
        "input_usd_per_mtok": candidate.price.input_usd_per_mtok,
        "output_usd_per_mtok": candidate.price.output_usd_per_mtok,
        "local": candidate.local,
        "context_tokens": candidate.context_tokens,
        "veiled": candidate.veiled,
    }


_CANDIDATE = (
    "skill",
    "output_tokens_per_s",
    "source",
    "verbosity",
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "local",
    "context_tokens",
    "veiled",
)


def _candidate(item: Any) -> Candidate:
    fields = read.as_object(item, "a candidate")
    read.only(fields, _CANDIDATE, "a candidate")
    source = read.one_of(fields, "source", get_args(CardSource))
    speed = read.amount(fields, "output_tokens_per_s")
    low, high = VERBOSITY
    wordy = read.amount(fields, "verbosity", lowest=low, highest=high)
    return Candidate(
        card=Card(_skill(fields), speed, cast(CardSource, source), wordy),
        price=Price(
            read.amount(fields, "input_usd_per_mtok"), read.amount(fields, "output_usd_per_mtok")
        ),
        local=read.flag(fields, "local"),
        context_tokens=read.whole(fields, "context_tokens", 0, _MOST),
        veiled=read.flag(fields, "veiled"),
    )


def _skill(fields: Fields) -> dict[str, float]:
    value = read.as_object(fields["skill"], "'skill'")
    if len(value) > _MAX_DOMAINS:
        raise WireError(f"'skill' has at most {_MAX_DOMAINS} domains")
    if not all(_DOMAIN.fullmatch(name) for name in value):
        raise WireError("'skill' has a domain that is no lower case word")
    return {name: read.amount(value, name, shown="skill", highest=1.0) for name in value}


def _heard(item: Any, step: int, candidates: int) -> Heard:
    fields = read.as_object(item, "what was heard")
    read.only(fields, Heard.__dataclass_fields__, "what was heard")
    known = fields["worker"] is not None
    return Heard(
        step=read.whole(fields, "step", step, step),
        worker=read.whole(fields, "worker", 0, candidates - 1) if known else None,
        answer=read.text(fields, "answer", MAX_ANSWER_CHARS),
        output_tokens=read.whole(fields, "output_tokens", 0, _MOST),
    )


def _log_prob(value: Any) -> float:
    fields = {"log_prob": value}
    return read.amount(fields, "log_prob", lowest=_LEAST_LOG_PROB, highest=0.0)


def _bundle_id(value: Any) -> str:
    if type(value) is not str or (value and not _BUNDLE.fullmatch(value)):
        raise WireError("'bundle' is no id of a bundle")
    return value


def _insight(item: Any) -> Insight:
    fields = read.as_object(item, "'insight'")
    read.only(fields, Insight.__dataclass_fields__, "'insight'")
    return Insight(
        right=read.chances(fields, "right", MAX_WORKERS),
        chosen=read.chances(fields, "chosen", MAX_WORKERS),
        accept=read.amount(fields, "accept", highest=1.0),
        expected_cost_usd=read.amount(fields, "expected_cost_usd"),
        expected_quality=read.amount(fields, "expected_quality", highest=1.0),
    )
