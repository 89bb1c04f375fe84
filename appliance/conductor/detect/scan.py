"""Reads every text of a JSON body and says which detectors fired, never on what.

`scan_value` is pure and may take as long as its input is long; `Scanner` runs it without stalling
the event loop. Detectors only ever raise a label: what could not be read, for whatever reason, is
said in `Scan.unscanned`, and a scan that lists a reason is never clean.

Left out: names, addresses, markings, national numbers. No pattern stops a willing insider
(paraphrase, rot13): labels and clearances decide.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from functools import cache

import orjson
import structlog

from conductor.core import Finding, Scan
from conductor.detect.canonical import fold, grouped, overridden, squeeze, undressed, unwrap
from conductor.detect.decoding import TooLarge, decode, holds_opaque_data
from conductor.detect.identifiers import iban_rules, identifier_rules
from conductor.detect.leaves import read
from conductor.detect.pool import ScanPool, unscanned
from conductor.detect.rules import MAX_CANDIDATES, RuleSet, TooManyCandidates
from conductor.detect.secrets import secret_rules
from conductor.logs import error_name

DETECTORS: frozenset[str] = frozenset(
    {
        "secret.aws",
        "secret.private_key",
        "secret.token",
        "secret.generic",
        "iban",
        "payment_card",
        "email",
    }
)
"""Every name that a finding can carry."""

REASONS: frozenset[str] = frozenset(
    {
        "audio",
        "data-url",
        "decoded-too-deep",
        "decoded-too-long",
        "detector-error",
        "encrypted",
        "file",
        "image",
        "nested-json",
        "not-json",
        "number",
        "scanner-died",
        "scanner-down",
        "timeout",
        "too-long",
        "too-many-candidates",
        "unknown-part",
        "video",
    }
)
"""Every reason that `Scan.unscanned` can list."""

VERSION = 2
"""Raised with every change of what is found: part of the key under which scans are cached."""

MAX_TEXT_BYTES = 32 << 20
DECODE_DEPTH = 4
"""Layers of encoding that are taken off: base64 of percent-encoded text is two. What hides still
more is not read to its ground, and counts as not scanned."""

_BROKEN_BY_LINES = frozenset({"secret.generic", "email"})
"""Not sought across a line's end, nor in a list read as one: `password:` has a sentence below it,
`x` a `@decorator.of`."""

_BROKEN_BY_MARKS = frozenset({"secret.generic"})
"""Not sought where mark-up is taken away: what stands behind `password:` may be a new thing."""

_PASSING = frozenset({"timeout", "scanner-down", "scanner-died", "detector-error"})
"""Reasons that may not hold the next time: such scans are not cached."""

_INLINE_CANDIDATES = 300
"""A short body with more matches to judge was made to hold up the loop: it counts as long."""

_MIN_CACHED = 512
_CACHED_SCANS = 1024
_SHORT = 256 << 10
"""Bodies from here on are digested in a thread: it takes a millisecond a MiB."""

log = structlog.get_logger()


def scan_value(
    value: object, max_text_bytes: int = MAX_TEXT_BYTES, max_candidates: int = MAX_CANDIDATES
) -> Scan:
    """Scan a decoded JSON body. Never raises for anything in it.

    Text beyond `max_text_bytes` (UTF-8) is not read, neither is decoded text beyond twice that, and
    no more than `max_candidates` matches of a rule in a text are judged: the scan then says so. A
    fault in a detector is a reason too.
    """
    run = _Run(2 * max_text_bytes + (64 << 10), max_candidates)
    text_bytes = 0
    try:
        reading = read(value, max_text_bytes)
        text_bytes = reading.text_bytes
        run.unscanned.update(reading.unscanned)
        for name, document in reading.documents.items():
            run.document(name, document)
    except Exception as error:  # noqa: BLE001 - fail closed: no fault may end as a clean scan
        log.error("detector_failed", error=error_name(error))
        run.unscanned.add("detector-error")
    return Scan(tuple(run.findings.values()), text_bytes, tuple(sorted(run.unscanned)))


@cache
def rule_set() -> RuleSet:
    """All rules, compiled on first use (some tens of milliseconds)."""
    return RuleSet((*secret_rules(), *identifier_rules()))


@cache
def _grouped_rule_set() -> RuleSet:
    """The rules for numbers that stand out however they are grouped."""
    return RuleSet(iban_rules())


class _Run:
    """Findings of one scan. A detector is reported once, under the first view it fired in."""

    def __init__(self, decode_limit: int, max_candidates: int) -> None:
        self.findings: dict[str, Finding] = {}
        self.unscanned: set[str] = set()
        self._decode_limit = decode_limit
        self._max_candidates = max_candidates

    def document(self, name: str, document: str) -> None:
        """Search one document of a reading in all its views."""
        text = document.encode("utf-8", "ignore")
        if name == "adjacent":
            for squeezed in squeeze(fold(text)):
                self._search(name, squeezed, distinct_only=True)
            return
        view = name
        for depth in range(DECODE_DEPTH + 1):
            if not text:
                return
            if view == "rows":
                self._search(view, text, without=_BROKEN_BY_LINES)
            else:
                text = self._views(view, text)
            if name != "joined" and holds_opaque_data(text):  # no picture spans two messages
                self.unscanned.add("data-url")
            text, view = self._decoded(text), "decoded"
            if text and depth == DECODE_DEPTH:
                self.unscanned.add("decoded-too-deep")

    def _views(self, view: str, text: bytes) -> bytes:
        """Search a text as it stands and with its disguises off; give it in plain characters."""
        self._search(view, text)
        folded = fold(text)
        if folded != text:
            self._search("canonical", folded)
        lines = unwrap(folded)
        if len(lines) < len(folded):
            self._search("lines", lines, without=_BROKEN_BY_LINES)
        shown = undressed(folded)
        if len(shown) < len(folded):
            self._search("shown", shown, without=_BROKEN_BY_MARKS)
        if overridden(text):
            self._search("reversed", folded[::-1])
        for squeezed in squeeze(folded):
            self._search("squeezed", squeezed, distinct_only=True)
        self._search("grouped", grouped(folded), rules=_grouped_rule_set())
        return folded

    def _decoded(self, text: bytes) -> bytes:
        try:
            decoded = decode(text, self._decode_limit)
        except TooLarge:
            self.unscanned.add("decoded-too-long")
            return b""
        self._decode_limit -= len(decoded)
        return decoded

    def _search(
        self,
        view: str,
        text: bytes,
        *,
        distinct_only: bool = False,
        without: frozenset[str] = frozenset(),
        rules: RuleSet | None = None,
    ) -> None:
        skip = self.findings.keys() | without
        try:
            found = (rules or rule_set()).search(
                text, skip, distinct_only=distinct_only, max_candidates=self._max_candidates
            )
        except TooManyCandidates:
            self.unscanned.add("too-many-candidates")
            return
        for detector, count in found.items():
            self.findings[detector] = Finding(detector, count, view)


class Scanner:
    """Scans without stalling the loop: short bodies at once, long ones in processes of their own.

    `inline_bytes` is the longest JSON text scanned on the loop, `timeout_s` the most that waiting
    for a process and scanning may take together. While `ready` is False, long bodies come back
    unscanned. `start` before use and `close` after.
    """

    def __init__(
        self,
        inline_bytes: int = 16 << 10,
        processes: int = 1,
        timeout_s: float = 10.0,
        max_text_bytes: int = MAX_TEXT_BYTES,
    ) -> None:
        self._inline_bytes = inline_bytes
        self._timeout_s = timeout_s
        self._max_text_bytes = max_text_bytes
        self._pool = ScanPool(processes, max_text_bytes)
        self._cache: OrderedDict[bytes, Scan] = OrderedDict()
        self._key = secrets.token_bytes(32)

    @property
    def ready(self) -> bool:
        """Whether long bodies can be scanned."""
        return self._pool.ready

    async def start(self) -> None:
        """Compile the rules and start the processes; failing to is told by `ready`, not raised."""
        scan_value({"warm": "up"}, self._max_text_bytes)
        await self._pool.start()

    async def close(self) -> None:
        """End the processes. Scans in progress come back unscanned or cancelled."""
        await self._pool.close()

    async def scan(self, value: object, encoded: bytes | None = None) -> Scan:
        """Scan a JSON value. `encoded` saves work: the very text that `value` was parsed from.

        Without it, a value that orjson will not write (nested deeper than 254) is unscanned.
        """
        if encoded is None:
            try:
                encoded = orjson.dumps(value)
            except orjson.JSONEncodeError:
                return unscanned("not-json")
        if len(encoded) < min(_MIN_CACHED, self._inline_bytes + 1):
            return scan_value(value, self._max_text_bytes)
        key = await self._digest(encoded)
        if (known := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return known
        scan = None
        if len(encoded) <= self._inline_bytes:
            scan = scan_value(value, self._max_text_bytes, _INLINE_CANDIDATES)
        if scan is None or "too-many-candidates" in scan.unscanned:
            scan = await self._pool.scan(encoded, self._timeout_s)
        self._remember(key, scan)
        return scan

    async def _digest(self, body: bytes) -> bytes:
        """A keyed hash (BLAKE2, RFC 7693), so that the cache holds nothing to guess texts from."""
        if len(body) <= _SHORT:
            return self._hash(body)
        return await asyncio.to_thread(self._hash, body)

    def _hash(self, body: bytes) -> bytes:
        salt = VERSION.to_bytes(8, "big")
        return hashlib.blake2b(body, key=self._key, salt=salt, digest_size=32).digest()

    def _remember(self, key: bytes, scan: Scan) -> None:
        if not _PASSING.isdisjoint(scan.unscanned):
            return
        self._cache[key] = scan
        if len(self._cache) > _CACHED_SCANS:
            self._cache.popitem(last=False)
