"""Addresses of machines: IPv4 and IPv6. One that the whole world may reach tells of somebody.

Addresses of private networks, of the machine itself and of documentation (RFC 1918, 4291, 5737)
stand in every manual and are told as unlikely.
"""

from __future__ import annotations

import ipaddress
import re

from conductor.core import Likelihood
from conductor.detect.context import near
from conductor.detect.rules import Rule

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_V4 = rf"(?:^|[^0-9A-Za-z.\-])({_OCTET}(?:\.{_OCTET}){{3}})(?:[^0-9A-Za-z.]|\.[^0-9A-Za-z]|\.?$)"
_V6 = r"(?:^|[^0-9A-Za-z:.])([0-9A-Fa-f]{1,4}(?::{1,2}[0-9A-Fa-f]{1,4}){2,7})(?:[^0-9A-Za-z:]|$)"
_V6_GATE = r"[0-9A-Fa-f]:{1,2}[0-9A-Fa-f]{1,4}:{1,2}[0-9A-Fa-f]"

_VERSION = re.compile(
    rb"(?i)(?:version|release|section|chapter|clause|annex|article|figure|kernel|build|oid"
    rb"|\bv\.?|\xc2\xa7|\bto)[ :=\"']{0,3}\Z"
)
_told = near(("ip", "address", "adresse", "indirizzo", "host", "client", "remote", "from", "login"))


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_address(text: bytes, start: int, end: int) -> bool:
    """Whether the bytes are an address; a few digits with colons seldom are."""
    return _address(text[start:end].decode("ascii")) is not None


def weigh_address(text: bytes, start: int, end: int) -> Likelihood | None:
    """Private: unlikely. Of single digits, or after `version`: a section or a release, no address.

    Public: possible, and likely where something says that it is one.
    """
    address = _address(text[start:end].decode("ascii"))
    if address is None or _VERSION.search(text[max(0, start - 24) : start]):
        return None
    if not address.is_global or address.is_multicast:
        return Likelihood.VERY_UNLIKELY
    told = _told(text, start, end)
    if address.version == 6:
        return Likelihood.VERY_LIKELY if told else Likelihood.LIKELY
    if all(len(part) == 1 for part in text[start:end].split(b".")):
        return Likelihood.POSSIBLE if told else None
    return Likelihood.VERY_LIKELY if told else Likelihood.LIKELY


def network_rules() -> tuple[Rule, ...]:
    """The rules of this room."""
    return (
        Rule("ip", _V4, (_V4,), is_address, weigh_address),
        Rule("ip", _V6_GATE, (_V6,), is_address, weigh_address),
    )
