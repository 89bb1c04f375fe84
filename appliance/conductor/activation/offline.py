"""Changing the policy of an appliance that is not running: the same desk, the same checks, the same
record, under the same two locks. Whoever holds either is the running appliance.

It is done as the account of the state, whoever types: see `process/asowner.py`.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from conductor import __version__
from conductor.activation import checker
from conductor.activation.desk import Desk, Outcome, Who
from conductor.activation.startup import starting
from conductor.activation.store import Store
from conductor.active import Active
from conductor.audit import keys
from conductor.audit.log import AuditLog
from conductor.config import Site
from conductor.process.asowner import become_owner

Act = Callable[[Desk, Who], Awaitable[Outcome]]


async def at_desk(config: Path, act: Act) -> Outcome:
    """What `act` gives at a desk for the site in `config`. Raises `ConductorError`."""
    start, uid = starting(config), os.getuid()
    paths = start.site.appliance.paths
    become_owner(paths.state, reading=config)
    store, active = Store(paths.published), Active(start.site)

    async def swap(site: Site) -> None:
        active.swap(site)

    with store.writing() as writer:
        keys.ensure(paths.audit_key, paths.audit)  # it may never have been started
        told = {"build": __version__, "mode": start.site.appliance.mode, "offline": True}
        audit = AuditLog.open(paths.audit, start=told, key=keys.load(paths.audit_key))
        try:
            desk = Desk(
                active=active,
                store=store,
                writer=writer,
                audit=audit,
                check=checker.ask,
                swap=swap,
                degraded=start.degraded,
            )
            return await act(desk, Who(uid, "offline"))
        finally:
            await audit.close()
