"""Which protections a site runs without, by name: said in the log at every start, so that nobody
can later claim not to have known. None of them is an error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import ip_address

from conductor.config import Site
from conductor.core import RemoteEndpoint


def weakened(site: Site) -> list[str]:
    """The names, in a fixed order; empty when nothing is weakened."""
    return list(_names(site))


def _names(site: Site) -> Iterator[str]:
    policy, appliance = site.policy, site.appliance
    if not policy.guardrail_approvals:
        yield "guardrails-change-without-approval"
    if not any(rule.mode == "enforce" for rule in policy.guardrails):
        yield "no-guardrails"
    if not policy.profile.names:
        yield "names-not-sought"
    if not _is_loopback(appliance.api.host):
        yield "api-without-tls"
    if not _is_loopback(appliance.api.admin_host):
        yield "status-page-open-to-the-network"
    if os.environ.get("PYTHONHASHSEED", "random") not in ("", "random"):
        yield "answers-remembered-under-a-known-key"  # see `flow/fingerprints.py`
    if appliance.feedback.max_label is not None:
        yield "judged-questions-kept"
    urls = [w.endpoint.base_url for w in site.workers if isinstance(w.endpoint, RemoteEndpoint)]
    if any(url is not None and url.startswith("http:") for url in urls):
        yield "vendor-without-tls"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
