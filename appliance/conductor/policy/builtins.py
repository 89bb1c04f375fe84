"""Names of what decides without standing in any file: the clearance floor and the baseline."""

from __future__ import annotations

FLOOR_LABEL = "floor.label"
"""The label is none of this site's."""
FLOOR_CLEARANCE = "floor.clearance"
"""The data is above what the worker is cleared for."""
FLOOR_UNSCANNED = "floor.unscanned"
"""What no detector could read stays on this machine."""
BASELINE_LOCAL = "baseline.local"
"""No rule speaks of it, and it stays on this machine."""
BASELINE_REMOTE = "baseline.remote"
"""No rule allows it, and it would leave this machine."""

BUILT_IN_RULES = (FLOOR_LABEL, FLOOR_CLEARANCE, FLOOR_UNSCANNED, BASELINE_LOCAL, BASELINE_REMOTE)
BUILT_IN = "built-in"
"""Position of what stands in no file."""
