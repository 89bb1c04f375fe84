"""What the bundles that tests have written say of themselves."""

from __future__ import annotations

from datetime import UTC, datetime

from conductor.planner.manifest import PromptId
from conductor_build.bundle import Facts, LmFacts
from support.bundles import ENCODER, PROVENANCE

FACTS = Facts(1, ENCODER, PROVENANCE, datetime(2026, 11, 30, 12, tzinfo=UTC))
LM_FACTS = LmFacts(PromptId(1, "d" * 64), "float32", PROVENANCE, FACTS.created)
LM_FILES = {
    "lm/config.json": b"{}",
    "lm/tokenizer.json": b"{}",
    "plan/tables.bin": b"tables",
    "plan/prompt.json": b"{}",
    "report/parity.json": b"{}",
}
"""Of a language model, but for its weights; nobody has looked whether they fit each other."""
