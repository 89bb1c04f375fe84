"""Running a declassifier on a JSON value: find, cut out, scan the result, lower the label or not.

The texts are searched for what the declassifier takes out; what came of it is then scanned anew,
as a whole and by all detectors, as if a client had sent it. Anything left over, anything that could
not be read, before or after, means that the label stays as it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from conductor.core import Obligation, ObligationKind, Scan
from conductor.declassify.leaftexts import leaves, replaced
from conductor.declassify.pseudonyms import Pseudonyms
from conductor.declassify.redact import redact_all
from conductor.declassify.residue import Residue, residue
from conductor.detect.scan import Scanner
from conductor.flow.standing import Standing
from conductor.labels import LOWEST, Label
from conductor.policy.decide import classify
from conductor.policy.declassifiers import Declassifier
from conductor.policy.document import Policy
from conductor.run.aside import aside
from conductor.run.workflow import Workflow, part_of

_CARRIED_OUT: dict[str, ObligationKind] = {"redact": "redact", "pseudonymise": "pseudonymise"}


@dataclass(frozen=True)
class Rewritten:
    """A value without what was to be cut out, how it stands, and what was left over."""

    value: Any
    standing: Standing
    left: Residue
    cut: int
    """How many places were rewritten."""


class Rewriter:
    """Carries out declassifiers of the kinds `redact` and `pseudonymise`."""

    def __init__(self, scanner: Scanner) -> None:
        self._scanner = scanner

    async def rewrite(
        self,
        value: Any,
        size: int,
        standing: Standing,
        declassifier: Declassifier,
        policy: Policy,
        workflow: Workflow,
    ) -> Rewritten:
        """`value`, JSON of `size` bytes, rewritten; `Rewritten.standing` is lowered only when
        nothing was left over."""
        texts = await aside(size, leaves, value)
        spans = await self._scanner.spans(texts, declassifier.types, policy.profile)
        if declassifier.kind == "pseudonymise":
            async with workflow.masking:
                mask_all = workflow.pseudonyms.mask_all
                new = await aside(size, mask_all, texts, spans.per_text, standing.label)
        else:
            new = await aside(size, redact_all, texts, spans.per_text)
        rewritten = await aside(size, replaced, value, new)
        plain, encoded = await aside(size, _bare, value, new, workflow.pseudonyms)
        scan = await self._scanner.scan(plain, encoded, policy.profile)
        left = residue(scan, declassifier.types, whole=spans.complete and not spans.hidden)
        after = standing
        if left.clean:
            after = _lowered(standing, declassifier, policy, workflow.fixed, scan)
        return Rewritten(rewritten, after, left, sum(map(len, spans.per_text)))


def _bare(value: Any, texts: Sequence[str], pseudonyms: Pseudonyms) -> tuple[Any, bytes]:
    """The value with these texts as detectors are to see it, and as JSON: our own tokens say
    nothing, and some detectors take them for names."""
    plain = replaced(value, [pseudonyms.as_redacted(text) for text in texts])
    return plain, orjson.dumps(plain)


def lowered_by(
    standing: Standing, declassifier: Declassifier, fixed: Label, found: Label = LOWEST
) -> Standing:
    """How data stands once a declassifier has done its work and nothing was left over. `found` is
    the label of what detectors still find: other kinds of data than it takes out."""
    label = declassifier.removes.from_label(standing.label).join(found)
    # Joined only as far as the data had it: lowering never raises.
    kept = part_of(fixed, standing.label)
    done = Obligation(_CARRIED_OUT[declassifier.kind], declassifier.id)
    return standing.lowered(label.join(kept), done)


def _lowered(
    standing: Standing, declassifier: Declassifier, policy: Policy, fixed: Label, scan: Scan
) -> Standing:
    return lowered_by(standing, declassifier, fixed, classify(policy, scan, LOWEST))
