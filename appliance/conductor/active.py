"""The configuration that counts now: one snapshot, swapped whole.

A request takes `Active.site` once and keeps it to its end, so that a policy applied meanwhile
decides the requests after it, and never half of one.
"""

from __future__ import annotations

from conductor.config import Site


class Active:
    """Holds the current snapshot. For use from one event loop."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def site(self) -> Site:
        """What a request that begins now is judged by."""
        return self._site

    def swap(self, site: Site) -> None:
        """Let requests that begin from now on be judged by `site`."""
        self._site = site
