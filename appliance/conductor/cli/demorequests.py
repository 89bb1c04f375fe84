"""What `conductor demo` asks, and asking it: requests of every kind of sensitivity."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console

from conductor.config import Site
from conductor.core import Body
from conductor.errors import StartError

if TYPE_CHECKING:
    from openai import AsyncOpenAI

IBAN = "IT60 X054 2811 1010 0000 0123 456"
CARD = "4111 1111 1111 1111"
AWS_KEY = "AKIAIOSFODNN7EXAMPLE"
MAIL = "anna.rossi@example.com"
SECRETS = (
    *(IBAN, IBAN.replace(" ", ""), CARD, CARD.replace(" ", ""), AWS_KEY),
    *(MAIL, "Rossi", "Project Heron"),
)
"""What must not reach the vendor in any of its spellings here."""


@dataclass(frozen=True)
class Asked:
    """One request of the demo. `expect` is the status it should get."""

    title: str
    text: str
    model: str = "conductor"
    extra: dict[str, Any] = field(default_factory=dict)
    label: str | None = None
    stream: bool = False
    expect: int = 200


REQUESTS = (
    Asked("a simple question", "Name one planet that has rings."),
    Asked(
        "a simple one, quality before cost",
        "What is the capital of Italy? One word.",
        "conductor-quality",
        stream=True,
    ),
    Asked(
        "a hard one, quality before cost",
        "x^3 - 3x + 1 = 0 has the roots a, b, c. What is a^5 + b^5 + c^5? The number alone.",
        "conductor-quality",
    ),
    Asked(
        "a hard one, declared confidential",
        "Project Heron: 7 crates of 24 parts and 6 loose ones, a third of all parts is faulty. "
        "How many are good? The number alone.",
        "conductor-quality",
        label="confidential",
    ),
    Asked(
        "a mail address, for the vendor under contract",
        f"Write one line to Anna Rossi, {MAIL}, about lunch on Friday.",
        "frontier-mini",
    ),
    Asked(
        "a hard one about a person and an account",
        f"Anna Rossi pays x into {IBAN}, where x^2 - 17x + 60 = 0 and x > 10. Solve for x. "
        "The number alone.",
        "conductor-quality",
    ),
    Asked("an IBAN", f"Write one polite sentence asking to pay to {IBAN}."),
    Asked("an API key", f"Why would aws_access_key_id = {AWS_KEY} be refused?", stream=True),
    Asked(
        "a card, and a body that asks for the cloud",
        f"Is {CARD} a valid card number? Yes or no.",
        extra={"fallbacks": ["frontier-large"], "api_base": "http://127.0.0.1:18099/v1"},
    ),
    Asked("a card, straight to the vendor", f"Charge {CARD}.", "frontier-large", expect=403),
    Asked("one worker by its id", "Name a prime number.", "frontier-mini"),
)


@dataclass(frozen=True)
class Told:
    """What came back for one request."""

    asked: Asked
    status: int
    trace: Body
    text: str
    seconds: float


async def ask(site: Site, asked: Asked, console: Console) -> Told:
    """Send one request with the official client; a refusal is an answer too."""
    from openai import APIStatusError

    console.print(f"asking: {asked.title} ...", highlight=False)
    client = _client(site, trusted=asked.label is not None)
    started_s = time.monotonic()
    try:
        status, trace, text = 200, *await _answer(client, asked)
    except APIStatusError as error:
        code = (error.body or {}).get("code") if isinstance(error.body, dict) else None
        trace = {"label": error.response.headers.get("x-conductor-label", "")}
        status, text = error.status_code, f"refused: {code}"
    finally:
        await client.close()
    return Told(asked, status, trace, text, time.monotonic() - started_s)


async def _answer(client: AsyncOpenAI, asked: Asked) -> tuple[Body, str]:
    headers = {"x-conductor-trace": "true"}
    if asked.label is not None:
        headers["x-conductor-label"] = asked.label
    request: dict[str, Any] = {
        "model": asked.model,
        "messages": [{"role": "user", "content": asked.text}],
        "max_tokens": 48,
        "temperature": 0,
        "extra_headers": headers,
        "extra_body": asked.extra,
    }
    if not asked.stream:
        plain = await client.chat.completions.create(**request)
        return (plain.model_extra or {})["conductor"], plain.choices[0].message.content or ""
    text, trace = "", {}
    stream = await client.chat.completions.create(
        **request, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in stream:
        if chunk.choices:
            text += chunk.choices[0].delta.content or ""
        else:
            trace = (chunk.model_extra or {})["conductor"]
    return trace, text


def _client(site: Site, *, trusted: bool) -> AsyncOpenAI:
    from openai import AsyncOpenAI

    from conductor.secretrefs import resolve

    key = next(key for key in site.appliance.keys if key.declare_labels is trusted)
    if key.secret is None:
        raise StartError(f"the demo needs the secret of key '{key.id}', not its hash")
    api = site.appliance.api
    return AsyncOpenAI(
        base_url=f"http://{api.host}:{api.port}/v1",
        api_key=resolve(key.secret).reveal(),
        max_retries=0,
    )
