"""`conductor policy`: the group of its verbs."""

from __future__ import annotations

import click

from conductor.cli.policyapprove import approve, keygen
from conductor.cli.policychange import apply, rollback
from conductor.cli.policyimport import import_gitleaks
from conductor.cli.policykept import history, show, status
from conductor.cli.policylook import diff, explain, lint, replay, test


@click.group()
def policy() -> None:
    """Which data may go where: check, explain, compare and change the policy.

    \b
    Before a change:  lint, test, explain, diff, replay
    The change:       apply (approve before it, where approvers are named)
    Afterwards:       status, history, show, rollback

    Guide: docs/policy-admin.md
    """


for verb in (
    *(lint, test, explain, diff, replay),
    *(apply, rollback, history, status, show),
    *(keygen, approve, import_gitleaks),
):
    policy.add_command(verb)
