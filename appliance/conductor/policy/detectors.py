"""Detectors by name: those that the appliance brings, the site's own, and whole families.

A family is the first words of an id: `secret` stands for every `secret.*`, `id.it` for the national
numbers of one country. A name that is none of them is a fault, so that no rule waits for a detector
that does not exist.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from conductor.strictyaml.values import Value


class Detectors:
    """The names that a policy may use."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._members: dict[str, frozenset[str]] = {}
        families: dict[str, set[str]] = {}
        for name in ids:
            words = name.split(".")
            for length in range(1, len(words) + 1):
                families.setdefault(".".join(words[:length]), set()).add(name)
        self._members = {name: frozenset(members) for name, members in families.items()}

    @property
    def names(self) -> Collection[str]:
        """Every id and every family."""
        return self._members.keys()

    def read(self, value: Value) -> frozenset[str]:
        """The ids that one name, or a list of names, stands for; faulty ones are left out."""
        names = (item.choice(self.names, "unknown-detector") for item in value.one_or_many())
        return frozenset(id for name in names if name for id in self._members[name])
