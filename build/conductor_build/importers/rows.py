"""What every source yields, and what happens to a row that is bad."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from conductor_build.outcome_files import OutcomesError, Prompt


@dataclass(frozen=True)
class Row:
    """One answer of one model, and the prompt it answers. `where` is file and line."""

    where: str
    prompt: Prompt
    model: str
    answer: str
    score: float
    output_tokens: float | None
    cost_usd: float | None = None
    time: float = 0.0
    """Seconds since 1970 where the source knows it; of two answers to one prompt the later counts
    in a source that allows two."""


@dataclass
class Faults:
    """Bad rows: the first one ends the import, or each is counted and left out."""

    skip: bool = False
    count: int = 0
    shown: list[str] = field(default_factory=list)
    most_shown: int = 20

    def add(self, fault: OutcomesError) -> None:
        """Raise `fault`, or count it; the first `most_shown` keep their message."""
        if not self.skip:
            raise fault
        self.count += 1
        if len(self.shown) < self.most_shown:
            self.shown.append(str(fault))


def prompt_of(task: str, question: str, where: str) -> Prompt:
    """A prompt of a source that gives it no id: the id is a hash of task and question."""
    if not question.strip():
        raise OutcomesError(f"{where}: its question is empty")
    digest = hashlib.sha256(f"{task}\n{question}".encode(errors="surrogatepass"))
    return Prompt(f"{task}:{digest.hexdigest()[:16]}", task, question)
