"""Reads every text of a JSON body and says which detectors fired, never on what.

`scan_value` is pure and may take as long as its input is long; `Scanner` runs it without stalling
the event loop. Detectors only ever raise a label: what could not be read, for whatever reason, is
said in `Scan.unscanned`, and a scan that lists a reason is never clean.

No pattern stops a willing insider (paraphrase, rot13): labels and clearances decide.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from pathlib import Path

import orjson
import structlog

from conductor.core import Scan
from conductor.detect.cutting import find_spans
from conductor.detect.detectors import DETECTORS, NAMES, known, profile_rules, rule_set
from conductor.detect.leaves import read
from conductor.detect.naming import Names, seek_names
from conductor.detect.pool import ScanPool, Unanswered, unscanned
from conductor.detect.profile import DEFAULT_PROFILE, Profile
from conductor.detect.rules import MAX_CANDIDATES
from conductor.detect.spans import Spans, sought
from conductor.detect.views import Views
from conductor.logs import error_name

__all__ = ["DETECTORS", "REASONS", "Scanner", "known", "scan_spans", "scan_value"]

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
        "names-missing",
        "names-script",
        "names-timeout",
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

VERSION = 4
"""Raised with every change of what is found: part of the key under which scans are cached."""

MAX_TEXT_BYTES = 32 << 20
DECODE_DEPTH = 4
"""Layers of encoding that are taken off: base64 of percent-encoded text is two. What hides still
more is not read to its ground, and counts as not scanned."""

_PASSING = frozenset({"timeout", "scanner-down", "scanner-died", "detector-error", "names-timeout"})
"""Reasons that may not hold the next time: such scans are not cached."""

_INLINE_CANDIDATES = 300
"""A short body with more matches to judge was made to hold up the loop: it counts as long."""

_MIN_CACHED = 512
_CACHED_SCANS = 1024
_SHORT = 256 << 10
"""Bodies from here on are digested in a thread: it takes a millisecond a MiB."""

_OWN_INLINE = 100
"""Words and patterns of a policy that are compiled on the loop; more are left to the processes."""

log = structlog.get_logger()


def scan_value(
    value: object,
    max_text_bytes: int = MAX_TEXT_BYTES,
    max_candidates: int = MAX_CANDIDATES,
    profile: Profile = DEFAULT_PROFILE,
    names: Names | None = None,
) -> Scan:
    """Scan a decoded JSON body. Never raises for anything in it.

    Text beyond `max_text_bytes` (UTF-8) is not read, neither is decoded text beyond twice that, and
    no more than `max_candidates` matches of a rule in a text are judged: the scan then says so. A
    fault in a detector is a reason too, and so is a profile that wants `names` without any.
    """
    unread: set[str] = set()
    text_bytes = 0
    views = None
    try:
        decode_limit = 2 * max_text_bytes + (64 << 10)
        views = Views(rule_set(), profile_rules(profile), decode_limit, max_candidates)
        reading = read(value, max_text_bytes)
        text_bytes = reading.text_bytes
        unread.update(reading.unscanned)
        hidden = [
            views.document(name, document, DECODE_DEPTH).decode("utf-8", "ignore")
            for name, document in reading.documents.items()
        ]
        if profile.names:
            seek_names(
                views, [reading.documents["raw"], reading.documents["nested"], *hidden], names
            )
    except Exception as error:  # noqa: BLE001 - fail closed: no fault may end as a clean scan
        log.error("detector_failed", error=error_name(error))
        unread.add("detector-error")
    if views is None:
        return unscanned("detector-error")
    return Scan(views.findings, text_bytes, tuple(sorted(unread | views.unscanned)))


def scan_spans(
    texts: list[str], types: frozenset[str], profile: Profile, names: Names | None = None
) -> Spans:
    """Where in `texts` the detectors `types`, ids or their beginnings, fire. Never raises."""

    def rescan(value: object) -> Scan:
        rules_alone = Profile(profile.custom, profile.phone_regions)
        return scan_value(value, profile=rules_alone)

    try:
        return find_spans(texts, types, profile, names, rescan)
    except Exception as error:  # noqa: BLE001 - fail closed: no fault may end as complete
        log.error("detector_failed", error=error_name(error))
        return unread(len(texts))


def unread(texts: int) -> Spans:
    """The spans of texts that were not read."""
    return Spans(((),) * texts, complete=False)


class Scanner:
    """Scans without stalling the loop: short bodies at once, long ones in processes of their own.

    `inline_bytes` is the longest JSON text scanned on the loop, `timeout_s` the most that waiting
    for a process and scanning may take together. While `ready` is False, long bodies come back
    unscanned. What needs the model for names, whose files are in the folder `names_model`, is
    always left to the processes. `start` before use and `close` after.
    """

    def __init__(
        self,
        inline_bytes: int = 16 << 10,
        processes: int = 1,
        timeout_s: float = 10.0,
        max_text_bytes: int = MAX_TEXT_BYTES,
        names_model: Path | None = None,
    ) -> None:
        self._inline_bytes = inline_bytes
        self._timeout_s = timeout_s
        self._max_text_bytes = max_text_bytes
        self._pool = ScanPool(processes, max_text_bytes, names_model)
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

    async def scan(
        self, value: object, encoded: bytes | None = None, profile: Profile = DEFAULT_PROFILE
    ) -> Scan:
        """Scan a JSON value. `encoded` saves work: the very text that `value` was parsed from.

        Without it, a value that orjson will not write (nested deeper than 254) is unscanned.
        """
        if encoded is None:
            try:
                encoded = orjson.dumps(value)
            except orjson.JSONEncodeError:
                return unscanned("not-json")
        inline = len(encoded) <= self._inline_bytes and _is_light(profile)
        if inline and len(encoded) < _MIN_CACHED:
            return scan_value(value, self._max_text_bytes, profile=profile)
        key = await self._digest(encoded, profile)
        if (known_scan := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return known_scan
        scan = None
        if inline:
            scan = scan_value(value, self._max_text_bytes, _INLINE_CANDIDATES, profile)
        if scan is None or "too-many-candidates" in scan.unscanned:
            scan = await self._pool.scan(encoded, self._timeout_s, profile)
        self._remember(key, scan)
        return scan

    async def spans(
        self, texts: list[str], types: frozenset[str], profile: Profile = DEFAULT_PROFILE
    ) -> Spans:
        """Where in `texts` the detectors `types` fire: ids, or beginnings such as `secret`."""
        if any(sought(name, types) for name in NAMES):
            profile = Profile(profile.custom, profile.phone_regions, names=True)
        if sum(map(len, texts)) <= self._inline_bytes // 4 and _is_light(profile):
            return scan_spans(texts, types, profile)
        try:
            return await self._pool.spans(texts, types, self._timeout_s, profile)
        except Unanswered:
            return unread(len(texts))

    async def _digest(self, body: bytes, profile: Profile) -> bytes:
        """A keyed hash (BLAKE2, RFC 7693), so that the cache holds nothing to guess texts from."""
        if len(body) <= _SHORT:
            return self._hash(body, profile)
        return await asyncio.to_thread(self._hash, body, profile)

    def _hash(self, body: bytes, profile: Profile) -> bytes:
        salt = VERSION.to_bytes(8, "big")
        digest = hashlib.blake2b(profile.digest, key=self._key, salt=salt, digest_size=32)
        digest.update(body)
        return digest.digest()

    def _remember(self, key: bytes, scan: Scan) -> None:
        if not _PASSING.isdisjoint(scan.unscanned):
            return
        self._cache[key] = scan
        if len(self._cache) > _CACHED_SCANS:
            self._cache.popitem(last=False)


def _is_light(profile: Profile) -> bool:
    """Whether a short text takes no time under this profile: no model, few rules to compile."""
    own = sum(len(custom.words) or 1 for custom in profile.custom)
    return not profile.names and own <= _OWN_INLINE
