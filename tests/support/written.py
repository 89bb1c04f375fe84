"""What the bundles that tests have written say of themselves."""

from __future__ import annotations

from datetime import UTC, datetime

from conductor_build.bundle import Facts
from support.bundles import ENCODER, PROVENANCE

FACTS = Facts(1, ENCODER, PROVENANCE, datetime(2026, 11, 30, 12, tzinfo=UTC))
