"""Reading a policy beside a running event loop, in a thread, without holding it up too long.

For where `apart.py` cannot have a process. The reader makes some hundred thousand objects, which
sets off Python's cyclic collector again and again; each full collection stops every thread.
Measured with 500 rules on a busy machine: streams stood still for up to 390 ms, without the
collector for 20 to 50 ms (`tests/bench/bench_policy_apply.py`). Nothing that is read holds cycles.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from conductor.config import Site


def read_quietly(site: Site, policy: bytes) -> Site:
    """`site.with_policy(policy)`, ready to decide. For a thread; raises `ConfigError`."""
    with uncollected(), _yielding():
        changed = site.with_policy(policy)
        _ = changed.policy.masks  # compiled here, not by the first request
        return changed


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause the collector of this process, if it runs."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextmanager
def _yielding() -> Iterator[None]:
    """Have this process's threads take turns ten times as often. The loop asks for its turn after
    every system call, and each time waits as long as that for the reader."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(usual / 10)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
