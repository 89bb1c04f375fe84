"""Headers by which `serve` and the egress process speak besides the body. Written here alone."""

PERMIT = "x-conductor-permit"
"""To egress: leave to send exactly this body, see `egress/permit.py`."""

WORKER = "x-conductor-worker"
"""To egress: which worker the body is for."""

FAILURE = "x-conductor-failure"
"""From egress: a `core.Failure`, which says more than a status can."""

REASON = "x-conductor-reason"
"""From egress: why a permit was refused, one word."""
