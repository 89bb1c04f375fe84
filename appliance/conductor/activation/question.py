"""A candidate and what it would follow: all that a check looks at, fit to cross processes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conductor.activation.approvals import Approval
from conductor.activation.approvals import of_facts as approvals_of


@dataclass(frozen=True)
class Question:
    """May `candidate` be put in force? `active` holds the bytes of the site's files as they are
    now, `highest` is the highest revision ever in force; `audit` is the log whose decisions an
    emergency change may not loosen."""

    directory: Path
    active: Mapping[str, bytes] = field(repr=False)
    candidate: bytes = field(repr=False)
    highest: int
    approvals: tuple[Approval, ...] = ()
    emergency: bool = False
    audit: Path | None = None

    def facts(self) -> dict[str, Any]:
        """For JSON; `of_facts` reads it back."""
        return {
            "directory": str(self.directory),
            "active": {name: _text(data) for name, data in self.active.items()},
            "candidate": _text(self.candidate),
            "highest": self.highest,
            "approvals": [approval.facts() for approval in self.approvals],
            "emergency": self.emergency,
            "audit": str(self.audit) if self.audit else None,
        }


def of_facts(facts: Mapping[str, Any]) -> Question:
    """Read what `Question.facts` gave."""
    return Question(
        directory=Path(facts["directory"]),
        active={name: base64.b64decode(text) for name, text in facts["active"].items()},
        candidate=base64.b64decode(facts["candidate"]),
        highest=facts["highest"],
        approvals=approvals_of(facts["approvals"]),
        emergency=facts["emergency"],
        audit=Path(facts["audit"]) if facts["audit"] else None,
    )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
