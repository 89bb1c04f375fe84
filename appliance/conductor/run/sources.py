"""Which of a client's own texts made its request as sensitive as it is.

A marking labels a whole document, and a caller a whole request: either may come back in parts that
show nothing. So the messages that raised the label are remembered like answers are. Not the others:
an instruction that goes along with everything would label everything from then on.
"""

from __future__ import annotations

from conductor.chat.messages import text_of
from conductor.chat.request import ChatRequest
from conductor.detect.scan import Scanner
from conductor.labels import LOWEST
from conductor.policy.decide import classify
from conductor.run.intake import Judged
from conductor.run.memory import Memory
from conductor.run.workflow import towards

_INSTRUCTIONS = ("system", "developer")


class Sources:
    """Remembers them. One instance serves all requests."""

    def __init__(self, scanner: Scanner, memory: Memory) -> None:
        self._scanner = scanner
        self._memory = memory

    async def note(self, request: ChatRequest, judged: Judged) -> None:
        """Remember the messages that carry more than what every text of this key does."""
        policy, usual = judged.policy, towards(judged.policy.default_label)
        if judged.label.flows_to(usual):
            return
        for message in request.body["messages"]:
            text = text_of(message)
            scan = await self._scanner.scan([text], None, policy.profile)
            label = classify(policy, scan, LOWEST)
            if judged.declared is not None and message["role"] not in _INSTRUCTIONS:
                label = label.join(judged.declared)
            if not label.flows_to(usual):
                self._memory.keep([text], label, policy.lattice)
