"""Which of a client's own texts made its request as sensitive as it is.

A marking labels a whole document, and a caller a whole request: either may come back in parts that
show nothing. So the messages that were so labelled are remembered like answers are. Not the others:
an instruction that goes along with everything would label everything from then on. Nor a text for
the account number in it: that is found again wherever it goes, and without it the text says no more
than any other. Only where no message is sensitive alone, but several are together, all of them are.
"""

from __future__ import annotations

from conductor.chat.request import ChatRequest
from conductor.core import Body, Scan
from conductor.declassify.leaftexts import leaves
from conductor.detect.scan import Scanner
from conductor.labels import LOWEST, Label, join_all
from conductor.policy.decide import classify
from conductor.run.aside import aside
from conductor.run.intake import Judged
from conductor.run.memory import Memory
from conductor.run.wholetexts import of_all, stated_by
from conductor.run.workflow import towards

_INSTRUCTIONS = ("system", "developer")


class Sources:
    """Remembers them. One instance serves all requests."""

    def __init__(self, scanner: Scanner, memory: Memory) -> None:
        self._scanner = scanner
        self._memory = memory

    async def note(self, request: ChatRequest, judged: Judged) -> None:
        """Remember the messages that carry more than what an unlabelled text does. Also of a
        request that is refused afterwards."""
        policy = judged.policy
        usual = towards(policy.default_label)
        if judged.found.flows_to(usual):
            return
        messages: list[Body] = request.body["messages"]
        scans = [await self._scan(judged, [message]) for message in messages]
        alone = _all([classify(policy, scan, LOWEST) for scan in scans])
        labels = [classify(policy, of_all(scan, policy), LOWEST) for scan in scans]
        if len(messages) > 1 and not judged.found.flows_to(towards(judged.fixed.join(alone))):
            together = classify(policy, await self._scan(judged, messages), LOWEST)
            if not together.flows_to(towards(alone)):
                labels = [together] * len(messages)
        for message, scan, label in zip(messages, scans, labels, strict=True):
            stated = stated_by(scan, policy)
            if judged.declared is not None and message["role"] not in _INSTRUCTIONS:
                stated = stated.join(judged.declared)
            label = label.join(stated)
            if not label.flows_to(usual):
                texts = await aside(request.size, leaves, message)
                await self._memory.keep(["\n".join(texts)], label, policy, stated)

    async def _scan(self, judged: Judged, messages: list[Body]) -> Scan:
        return await self._scanner.scan({"messages": messages}, None, judged.policy.profile)


def _all(labels: list[Label]) -> Label:
    return join_all([LOWEST, *labels])
