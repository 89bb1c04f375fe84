"""When the certificates in front of the appliance expire."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from conductor.box.facts import Certificate
from conductor.box.place import Place

_NAMED = re.compile(r"^\s*ssl_certificate\s+\"?([^;\"\s]+)\"?\s*;", re.MULTILINE)
_MOST_BYTES = 256 * 1024


def certificates(place: Place) -> tuple[Certificate, ...]:
    """Those below `/etc/conductor/tls`, and those that nginx is told to use for us."""
    own = [
        path
        for pattern in ("*.crt", "*.pem")
        for path in (place.config / "tls").glob(pattern)
        if "key" not in path.name
    ]
    paths = dict.fromkeys([*sorted(own), *_of_nginx(place)])
    return tuple(Certificate(place.named(path), expiry(path)) for path in paths)


def _of_nginx(place: Place) -> Iterator[Path]:
    for folder in ("conf.d", "sites-enabled"):
        for path in sorted((place.at("/etc/nginx") / folder).glob("*conductor*")):
            try:
                text = path.read_text("utf-8", "replace")
            except OSError:
                continue
            yield from (place.at(named) for named in _NAMED.findall(text) if named[0] == "/")


def expiry(path: Path) -> datetime | None:
    """The first date on which one of the certificates in a PEM file ceases to be valid."""
    from cryptography.x509 import load_pem_x509_certificates

    try:
        with path.open("rb") as file:
            found = load_pem_x509_certificates(file.read(_MOST_BYTES))
    except (OSError, ValueError):
        return None
    return min((one.not_valid_after_utc for one in found), default=None)
