"""No process of the appliance leaves its memory on a disk: it holds prompts and keys."""

from __future__ import annotations

import resource


def forbid_core_dumps() -> None:
    """For this process and all that it starts. Programs that collect dumps heed the limit too."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
