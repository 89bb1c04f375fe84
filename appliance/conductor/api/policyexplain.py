"""Explaining what policy says to a request: for every destination, not only those in the pool.

The label is worked out as for a real request of that key; nothing is planned and nothing called.
"""

from __future__ import annotations

import asyncio
from typing import Any

from conductor.chat.request import parse_chat
from conductor.config import Site
from conductor.detect.scan import Scanner
from conductor.errors import BadRequest, LabelNotAllowed
from conductor.labels import Label
from conductor.policy.decide import classify
from conductor.policy.document import Policy
from conductor.policy.explain import explanation
from conductor.settings import Key


async def explain_request(
    site: Site, scanner: Scanner, raw: bytes, key_id: str | None, declared: str | None
) -> dict[str, Any]:
    """`raw` is a chat completion request; the key is the site's first unless given.

    Raises `BadRequest` and `LabelNotAllowed`.
    """
    key = _key(site, key_id)
    policy = site.policy
    label = _declared(policy, key, declared)
    request = parse_chat(raw)
    scan = await scanner.scan(request.body, raw, profile=policy.profile)
    base = key.default_label or policy.default_label
    after = classify(policy, scan, base, caller=key.id, declared=label)
    told = await asyncio.to_thread(explanation, policy, scan, base, after)
    return {"key": key.id, "declared": declared, **told}


def _key(site: Site, key_id: str | None) -> Key:
    keys = site.appliance.keys
    if key_id is None and keys:
        return keys[0]
    key = site.key(key_id or "")
    if key is None:
        known = ", ".join(key.id for key in keys)
        raise BadRequest(f"There is no such key here; keys are {known or 'none'}.", param="key")
    return key


def _declared(policy: Policy, key: Key, declared: str | None) -> Label | None:
    if declared is None:
        return None
    if not (key.declare_labels and policy.classifiers.believes(key.id)):
        raise LabelNotAllowed(f"What the key {key.id} declares of labels does not count.")
    try:
        return policy.lattice.parse(declared)
    except ValueError as error:
        raise LabelNotAllowed(f"The declared label is {error}.") from None
