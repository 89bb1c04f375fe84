"""The data of a policy's tests, decided under another policy: what it is is said in words, so that
the words of two lattices can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from conductor.config import Site
from conductor.core import Scan
from conductor.labels import Label
from conductor.policy.cases import Case
from conductor.policy.decide import decide
from conductor.policy.document import Policy
from conductor.policy.flows import probe
from conductor.policy.rulings import Ruling, looser, ruling
from conductor.policy.selftest import labelled, scan_without_names

_NOWHERE = Ruling("deny", "floor.label")


@dataclass(frozen=True)
class Data:
    """What a test is about, in words."""

    name: str
    to: str
    text: str | None
    label: str | None
    key: str | None
    declared: str | None


@dataclass(frozen=True)
class Compared:
    """One test's data under two policies."""

    name: str
    before: Ruling
    after: Ruling

    @property
    def looser(self) -> bool:
        return looser(self.before, self.after)


def compared(old: Site, new: Site) -> Iterator[Compared]:
    """The data of the tests in both files, under both."""
    told = {_data(site.policy, case): None for site in (old, new) for case in site.policy.tests}
    for data in told:
        yield Compared(data.name, ruled(old, data), ruled(new, data))


def ruled(site: Site, data: Data) -> Ruling:
    """What a site's policy says. A place or a label that it does not know: nothing goes."""
    policy = site.policy
    destination = policy.destinations.get(data.to)
    if destination is None:
        return _NOWHERE
    try:
        label = _label(site, data)
    except ValueError:
        return _NOWHERE
    return ruling(decide(policy, label, probe(destination)))


def _label(site: Site, data: Data) -> Label:
    """The label that the data would get; names are not sought. Raises `ValueError`."""
    policy, parse = site.policy, site.policy.lattice.parse
    scan = Scan((), 0)
    if data.text is not None:
        body = {"messages": [{"role": "user", "content": data.text}]}
        scan = scan_without_names(body, policy.profile)
    return labelled(
        policy,
        site.key(data.key) if data.key else None,
        scan,
        given=parse(data.label) if data.label is not None else None,
        declared=parse(data.declared) if data.declared else None,
    )


def _data(policy: Policy, case: Case) -> Data:
    given, show = case.given, policy.lattice.show
    return Data(
        case.name,
        given.to,
        given.text,
        show(given.label) if given.label else None,
        given.key,
        show(given.declared) if given.declared else None,
    )
