"""Who is calling: API keys, compared as hashes and in constant time."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from conductor.core import SecretRef
from conductor.errors import InvalidKey, RateLimited, StartError
from conductor.secretrefs import Secret
from conductor.settings import Key

MAX_KEY_BYTES = 512


class KeyRing:
    """The site's keys. `resolve` turns a reference into its secret, once, at start.

    Raises `StartError` when two keys have one secret: it could not be told who is asking.
    """

    def __init__(self, keys: Iterable[Key], resolve: Callable[[SecretRef], Secret]) -> None:
        self._keys = [(_digest_of(key, resolve), key) for key in keys]
        _check_distinct(self._keys)
        self._in_flight = {key.id: 0 for _, key in self._keys}

    def principal(self, authorization: str | None) -> Key:
        """The key in an `Authorization: Bearer` header; raises `InvalidKey`.

        Every stored hash is compared, so that the time taken tells nothing.
        """
        scheme, _, presented = (authorization or "").partition(" ")
        raw = presented.strip().encode("utf-8", "surrogateescape")
        if scheme.lower() != "bearer" or not raw or len(raw) > MAX_KEY_BYTES:
            raise InvalidKey
        digest = hashlib.sha256(raw).digest()
        found = [key for stored, key in self._keys if hmac.compare_digest(stored, digest)]
        if not found:
            raise InvalidKey
        return found[0]

    @contextmanager
    def admitted(self, key: Key) -> Iterator[None]:
        """Hold one of the key's places; raises `RateLimited` when all are taken."""
        if self._in_flight[key.id] >= key.max_in_flight:
            raise RateLimited(
                f"This key already has {key.max_in_flight} requests under way: wait for one.",
                retry_after_s=1,
                headers={
                    "x-ratelimit-limit-requests": str(key.max_in_flight),
                    "x-ratelimit-remaining-requests": "0",
                    "x-ratelimit-reset-requests": "1s",
                },
            )
        self._in_flight[key.id] += 1
        try:
            yield
        finally:
            self._in_flight[key.id] -= 1


def _check_distinct(keys: Iterable[tuple[bytes, Key]]) -> None:
    owners: dict[bytes, str] = {}
    for digest, key in keys:
        owner = owners.setdefault(digest, key.id)
        if owner != key.id:
            raise StartError(
                f"The keys '{owner}' and '{key.id}' have the same secret: give each its own."
            )


def _digest_of(key: Key, resolve: Callable[[SecretRef], Secret]) -> bytes:
    if key.sha256 is not None:
        return bytes.fromhex(key.sha256)
    if key.secret is None:
        raise ValueError(f"key {key.id} has neither a secret nor a hash")
    return hashlib.sha256(resolve(key.secret).reveal().encode()).digest()
