"""HTTP clients for servers on this machine.

They know no root certificates: to read them takes 30 ms, in which the loop under test stands still.
"""

from __future__ import annotations

import ssl
from functools import cache
from typing import Any

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

PATIENCE_S = 60.0
"""How long they wait for anything. No test has this as its subject."""


@cache
def _trusting_nobody() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def http_client(base_url: str = "", **more: Any) -> httpx.AsyncClient:
    """A plain client."""
    more.setdefault("timeout", PATIENCE_S)
    return httpx.AsyncClient(base_url=base_url, verify=_trusting_nobody(), trust_env=False, **more)


def openai_client(base_url: str, key: str, **more: Any) -> AsyncOpenAI:
    """The official client, by default without its own retries."""
    more.setdefault("max_retries", 0)
    more.setdefault("timeout", PATIENCE_S)
    http = DefaultAsyncHttpxClient(verify=_trusting_nobody(), trust_env=False)
    return AsyncOpenAI(base_url=base_url, api_key=key, http_client=http, **more)
