"""The rules of an air gap's second layer as the kernel has them, by `nft -j` (libnftables-json(5)).

A service in the gap can neither ask the kernel for them nor run a program that does. So
`conductor-airgap-seen.service`, as root, writes them down every few minutes where only root can
write: one line of `/proc/uptime`, by which their age is known whatever is done to the clock, then
the listing.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Final

import orjson

RULES: Final = "conductor-airgap.nft"
"""The file that is loaded, beside the configuration."""
TABLE: Final = ("inet", "conductor_airgap")
LISTING: Final = ("nft", "-j", "list", "table", *TABLE)
SEEN: Final = Path("/run/conductor/firewall.json")
PROGRAM: Final = Path("/usr/sbin/nft")
STALE_S: Final = 660.0
"""The timer's period of four minutes twice over, and some more."""

_MOVING = frozenset({"handle", "packets", "bytes"})
"""What differs from one loading of the same rules to the next, or with every packet."""


def sha256(listing: str | bytes) -> str | None:
    """Of the rules in a listing, hex; None when it shows no chain of our table."""
    objects = _objects(listing)
    if not any("chain" in one for one in objects):
        return None
    steady = [_steady(one) for one in objects]
    return hashlib.sha256(orjson.dumps(steady, option=orjson.OPT_SORT_KEYS)).hexdigest()


def blocked(listing: str | bytes) -> int | None:
    """Packets rejected since the rules were loaded."""
    counters = [one["counter"] for one in _objects(listing) if "counter" in one]
    return next((int(one["packets"]) for one in counters if one.get("name") == "blocked"), None)


def seen_sha256(path: Path = SEEN, now_s: float | None = None) -> str | None:
    """Of the rules that were last written down; None when those are too old, or none. `now_s`:
    since the machine has booted."""
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME) if now_s is None else now_s
    try:
        head, _, listing = path.read_bytes().partition(b"\n")
        age_s = now_s - float(head.split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return sha256(listing) if age_s < STALE_S else None


def _objects(listing: str | bytes) -> list[dict[str, Any]]:
    try:
        found = orjson.loads(listing)["nftables"]
        return [one for one in found if isinstance(one, dict) and "metainfo" not in one]
    except (ValueError, KeyError, TypeError):
        return []


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _steady(one) for name, one in value.items() if name not in _MOVING}
    return [_steady(one) for one in value] if isinstance(value, list) else value
