"""Workers as lines of a prompt: a number, what is known of it, and what it may be shown.

    2: remote; skill code 0.85 general 0.97 math 0.8; 80 tokens/s; $6.9 a thousand; window 200k;
       sees redacted q

One worker is one line, in the order of `PlanRequest.candidates`. No name of a model, a vendor or a
label can be in it: none is in the request. The same number has the same spelling on every machine.
Pure. Left out: what surrounds the lines (`prompt.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from conductor.core import Candidate, Card, Flow, PlanRequest

ANSWER_TOKENS = 400
"""Length of an answer by which prices are compared, before a worker's own `verbosity`."""
MAX_DOMAINS = 8
"""Skills that a line tells: the first in the order of their names, `general` always among them."""
_GENERAL = "general"
_NOTHING, _EVERYTHING = "nothing", "all"


def worker_lines(request: PlanRequest) -> str:
    """A line for each candidate; every line ends in a newline."""
    return "".join(
        f"{ordinal}: {_facts(candidate, request.prompt_tokens)}; sees {_sees(ordinal, request)}\n"
        for ordinal, candidate in enumerate(request.candidates)
    )


def _facts(candidate: Candidate, prompt_tokens: int) -> str:
    card = candidate.card
    facts = (
        "local" if candidate.local else "remote",
        _skills(card),
        f"{figure(card.output_tokens_per_s)} tokens/s",
        _price(candidate, prompt_tokens),
        f"window {_tokens(candidate.context_tokens)}",
    )
    return "; ".join(facts)


def _skills(card: Card) -> str:
    """`skill` for what was measured, `claimed` for what somebody declared."""
    if not card.skill:
        return "skill unknown"
    named = sorted(card.skill, key=lambda name: (name != _GENERAL, name))[:MAX_DOMAINS]
    word = "skill" if card.source == "measured" else "claimed"
    return " ".join([word, *(f"{name} {figure(card.skill[name])}" for name in sorted(named))])


def _price(candidate: Candidate, prompt_tokens: int) -> str:
    """What a thousand answers like this one would cost, in USD."""
    if candidate.price.free:
        return "free"
    written = ANSWER_TOKENS * candidate.card.verbosity
    usd = prompt_tokens * candidate.price.input_usd_per_mtok
    usd += written * candidate.price.output_usd_per_mtok
    return f"${figure(usd / 1e3)} a thousand"


def _tokens(count: int) -> str:
    return f"{count // 1000}k" if count >= 1000 else str(count)


def figure(value: float) -> str:
    """Two digits that count, without an exponent: `0.46`, `14`, `6.9`, `120`."""
    if value == 0:
        return "0"
    text = f"{float(f'{value:.1e}'):.12f}".rstrip("0").rstrip(".")
    return text or "0"


# -- who may be shown what ------------------------------------------------------------------------


def _sees(ordinal: int, request: PlanRequest) -> str:
    """What policy lets that candidate be shown, in the words that the prompt explains."""
    if request.flow is None:
        return _EVERYTHING
    if all(ordinal in ordinals for ordinals in request.flow.sees):
        return _EVERYTHING
    pieces = _pieces(request, request.flow)
    seen = [name for name, kind in pieces if ordinal in request.flow.sees[kind]]
    return ", ".join(_without_the_obvious(seen)) or _NOTHING


_REDACTED = "redacted "
_WORDS = "own words"


def _pieces(request: PlanRequest, flow: Flow) -> Iterator[tuple[str, int]]:
    """Everything a step may be shown by itself, and its class."""
    heard = zip(request.heard, flow.heard, strict=True)
    named = [("q", flow.question), *((str(one.step), kind) for one, kind in heard)]
    yield from named
    yield _WORDS, flow.control
    if request.may_redact and not request.one_step:
        yield from ((_REDACTED + name, flow.redacted[kind]) for name, kind in named)


def _without_the_obvious(seen: list[str]) -> list[str]:
    """Who sees a text sees what `redact` makes of it, so that is not said as well."""
    return [name for name in seen if name.removeprefix(_REDACTED) == name
            or name.removeprefix(_REDACTED) not in seen]  # fmt: skip
