"""Reading what an allow asks for in return.

    obligations: [no_tools, zero_retention, {redact: {by: redact-pii-v2}}]

`pseudonymise`, `redact` and `approve` name the declassifier that carries them out; the other two
are conditions on how the data is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast, get_args

from conductor.core import Obligation, ObligationKind
from conductor.policy.declassifiers import Declassifier, DeclassifierKind
from conductor.strictyaml.values import Value

DONE_BY: Mapping[ObligationKind, DeclassifierKind] = {
    "pseudonymise": "pseudonymise",
    "redact": "redact",
    "approve": "approved",
}
"""The kind of declassifier that carries out an obligation of a kind; the rest need none."""

_KINDS: tuple[ObligationKind, ...] = get_args(ObligationKind)
_PLAIN = tuple(kind for kind in _KINDS if kind not in DONE_BY)


def read_obligations(
    items: list[Value], declassifiers: Mapping[str, Declassifier]
) -> tuple[Obligation, ...]:
    """The obligations of one allow, sorted; each may stand there once."""
    found: set[Obligation] = set()
    for item in items:
        obligation = _obligation(item, declassifiers)
        if obligation in found:
            item.fault("duplicate-obligation", "this obligation stands in the list already")
        if obligation is not None:
            found.add(obligation)
    return tuple(sorted(found))


def _obligation(item: Value, declassifiers: Mapping[str, Declassifier]) -> Obligation | None:
    if item.kind == "scalar":
        name = item.choice(_PLAIN)
        return Obligation(cast(ObligationKind, name)) if name else None
    section = item.mapping()
    kind = cast(ObligationKind, section.exactly_one(*DONE_BY))
    if not kind:
        return None
    body = section.mapping(kind)
    section.done()
    by = body.require("by")
    body.done()
    wanted = [d.id for d in declassifiers.values() if d.kind == DONE_BY[kind]]
    name = by.choice(wanted, "unknown-declassifier") if by else ""
    return Obligation(kind, name) if name else None
