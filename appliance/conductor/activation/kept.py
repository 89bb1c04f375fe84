"""One policy as it was put in force: the file that keeps it, which tells when it was changed."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from conductor.errors import ConductorError

API_VERSION = "conductor/v1"
KIND = "ActivePolicy"

Approved = tuple[str, ...]
"""Ids of the approvers whose signatures counted."""


class CopyDamaged(ConductorError):
    """A kept policy is gone, or is not what was written."""


@dataclass(frozen=True)
class Copy:
    """The exact bytes of a policy that was put in force. `sha256` is over them, in hex; `at` is
    UTC, ISO 8601; `how` one of `first`, `apply`, `rollback`, `emergency`."""

    policy: bytes = field(repr=False)
    revision: int
    sha256: str
    at: str
    how: str
    approved: Approved = ()

    @classmethod
    def of(cls, policy: bytes, revision: int, at: str, how: str, approved: Approved) -> Copy:
        return cls(policy, revision, hashlib.sha256(policy).hexdigest(), at, how, approved)

    def facts(self) -> dict[str, Any]:
        """All but the policy itself, for people."""
        return {
            "revision": self.revision,
            "sha256": self.sha256,
            "at": self.at,
            "how": self.how,
            "approved": list(self.approved),
        }


def written(copy: Copy) -> bytes:
    """The file that `read_copy` reads. `seal` is a digest over all the rest: bits rot."""
    body = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        **copy.facts(),
        "policy": base64.b64encode(copy.policy).decode("ascii"),
    }
    return orjson.dumps({**body, "seal": _seal(body)}, option=orjson.OPT_SORT_KEYS)


def read_copy(path: Path, revision: int) -> Copy:
    """The copy in a file, which must be that of `revision`. Raises `CopyDamaged`."""
    try:
        body = orjson.loads(path.read_bytes())
        seal = body.pop("seal")
        policy = base64.b64decode(body["policy"], validate=True)
        copy = Copy.of(policy, body["revision"], body["at"], body["how"], tuple(body["approved"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise CopyDamaged(f"the kept policy of revision {revision} cannot be read") from None
    if seal != _seal(body) or copy.sha256 != body["sha256"] or copy.revision != revision:
        raise CopyDamaged(f"the kept policy of revision {revision} was changed on disk")
    return copy


def _seal(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()
