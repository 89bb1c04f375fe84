"""How many files a process may have open: each stream takes two, one on either side."""

from __future__ import annotations

import resource


def lift_limit() -> None:
    """Raise the soft limit to the hard one. Shells and service managers give 1024 to begin with,
    for the sake of programs that use select(2); nothing here does."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_clients() -> int:
    """How many connections a listener may hold: half of all files. The other half is for what their
    requests need: workers, the planner, the log."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
