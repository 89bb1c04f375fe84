"""What a language model is shown when it is to write a plan: the same in training and in serving.

    prefix    the task, the language, four examples: the same bytes for every request, filled up to
              whole blocks of tokens, so that its keys and values are computed once and reused
    rest      the workers, the limits, the question, what was answered so far, and the cue

Both are to be turned into tokens apart and joined then: so the prefix ends where a token does.

Pure: a request has one text. Texts of others, the question and the answers, are cut to their two
ends and cannot forge the marks around them, nor a model's control tokens. Whatever they talk the
model into, it can write only plans that the mask permits.

A change of any word here changes what trained conductors were trained on: raise `PROMPT_VERSION`.
Left out: the examples (`fewshot.py`) and how a worker is described (`cards.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from conductor.core import Heard, PlanRequest
from conductor.errors import PlanError
from conductor.plan.cards import figure, worker_lines
from conductor.plan.conclusion import ends
from conductor.plan.fewshot import EXAMPLES
from conductor.plan.language import LANGUAGE_VERSION, MAX_STEPS, MAX_TOTAL_STEPS, show
from conductor.plan.templates import Template
from conductor.plan.validate import PlanPool

PROMPT_VERSION = 1
"""Rises with every change of what a request's prompt is. Trained conductors name the one they
were trained on."""
BLOCK_TOKENS = 32
"""The prefix is a whole number of such blocks. Engines keep keys and values in blocks of
16 or 32."""
MAX_QUESTION_CHARS = 8192
"""Of a longer question the two ends are shown: some 2,000 tokens."""
MAX_ANSWER_CHARS = 2048
"""Of each answer that was heard; what it concludes with stands at one of its two ends."""

Count = Callable[[str], int]
"""How many tokens a text has, by itself and without any that a tokenizer adds in front."""


@dataclass(frozen=True)
class Frame:
    """What a model's chat format puts around the two parts."""

    name: str
    opening: str = ""
    middle: str = ""
    """Ends the prefix."""
    closing: str = ""
    control: tuple[str, ...] = ()
    """How its control tokens begin: texts of others may not hold that."""


PLAIN = Frame("plain", middle="\n")
"""For base models."""
CHATML = Frame(
    "chatml",
    "<|im_start|>system\n",
    "<|im_end|>\n<|im_start|>user\n",
    "<|im_end|>\n<|im_start|>assistant\n",
    ("<|",),
)
"""Of Qwen2.5 and SmolLM2."""


@dataclass(frozen=True)
class Prompt:
    """One request's prompt, in its two parts."""

    prefix: str
    rest: str

    @property
    def text(self) -> str:
        """All of it."""
        return self.prefix + self.rest


@dataclass(frozen=True)
class Prompter:
    """Writes prompts with one prefix: of a tokenizer, if it was made with `of`."""

    frame: Frame
    prefix: str

    @classmethod
    def of(
        cls, frame: Frame, count: Count | None = None, *, examples: int = len(EXAMPLES)
    ) -> Prompter:
        """With a prefix that `count` finds to be whole blocks; without it, not filled up.

        Fewer `examples`, the first ones, are for models whose training pays for each token of the
        prompt, and to measure what they are worth. Raises `PlanError` when no filling does it.
        """

        def prefix(fill: str) -> str:
            return _prefix(frame, fill, examples)

        return cls(frame, prefix("" if count is None else filling(prefix, count)))

    @property
    def digest(self) -> str:
        """SHA-256 of the prefix and the versions: equal in training and in serving."""
        said = f"{PROMPT_VERSION} {LANGUAGE_VERSION}\n{self.prefix}"
        return hashlib.sha256(said.encode()).hexdigest()

    def write(self, request: PlanRequest) -> Prompt:
        """The prompt for the request's next round. Raises `PlanError` when no plan is possible."""
        return Prompt(self.prefix, f"{_task(request, self.frame)}{_CUE}{self.frame.closing}")


def filling(prefix: Callable[[str], str], count: Count, multiple: int = BLOCK_TOKENS) -> str:
    """The shortest run of a mark with which `prefix` has a multiple of that many tokens.

    Raises `PlanError` for a tokenizer to which no mark adds the tokens that are missing.
    """
    for mark in _MARKS:
        for times in range(multiple * 2):
            if count(prefix(mark * times)) % multiple == 0:
                return mark * times
    raise PlanError(f"no filling makes this tokenizer's prefix a multiple of {multiple} tokens")


_MARKS = (" .", " -", ".", "\n", " a")
"""Tried in this order: the first two are one token each to most tokenizers, the third one byte."""

# -- the fixed part -------------------------------------------------------------------------------

_ROLE = f"""\
You plan how a question gets answered. You do not answer it. You write which workers do what, one \
after the other, and what each of them is shown. A plan is good when its last answer is right, and \
of two such plans the cheaper one is better.

A plan has 1 to {MAX_STEPS} lines, one line a step, run in that order:
<worker> <access> <subtask>

worker: a number from the list of workers, or one of two tools that cost nothing and take no \
subtask. `redact` removes from exactly one text whatever is secret or points to a person. `vote` \
picks, of the results it is shown, the one that most agree on.
access: what the step is shown: `q` the question, a number the result of that earlier step, \
several joined by commas as in `q,0,2`, `*` everything so far, `-` nothing.
subtask: what the worker has to do, on one line; `-` to have it simply answer.

A worker knows only what it is shown. The user gets the answer of the last step as it stands, so \
that step has to give it in the form the question asks for. One able worker is enough for an easy \
question. For a hard one let a worker prepare, solve, check or repair what others need, or let \
two solve it apart and a third decide. A weak worker that decides last spoils what better ones did.

Each worker is described by its skill (the share of right answers, by kind of question), its \
speed, what a thousand such answers cost, and how much text it can read. `sees` is what it may be \
shown: all of it; or the question `q`, results by their numbers, `redacted` versions of these, \
and `own words`, which are subtasks that you word yourself. A worker that may not see your own \
words takes `-` or one of these, to the letter:
"""

_ROUNDS = f"""
Steps are numbered from 0, through all rounds of a request, {MAX_TOTAL_STEPS} at most. In a \
further round you are shown the results so far, and write a plan that goes on from them; no line \
at all keeps the answer that stands.
"""

_CUE = "Plan:\n"


def _prefix(frame: Frame, fill: str, examples: int) -> str:
    told = f"{_ROLE}{_fixed_subtasks()}{_ROUNDS}{fill}{_examples(examples)}"
    return f"{frame.opening}{told}{frame.middle}"


def _fixed_subtasks() -> str:
    return "".join(f"- {_beginning(template)}\n" for template in Template)


def _beginning(template: Template) -> str:
    """Its first clause: the mask writes the rest, whoever began one to the letter."""
    whole = str(template)
    end = min((place for mark in (":", ". ") if (place := whole.find(mark)) > 0), default=None)
    return whole if end is None else f"{whole[:end]} ..."


def _examples(most: int) -> str:
    texts = (
        f"\nExample {number}\n{_task(one.request, PLAIN)}{_CUE}{show(one.plan)}"
        for number, one in enumerate(EXAMPLES[:most], 1)
    )
    return "".join(texts)


# -- the request ----------------------------------------------------------------------------------


def _task(request: PlanRequest, frame: Frame) -> str:
    question = _quoted(request.question, MAX_QUESTION_CHARS, frame)
    results = "".join(_result(heard, frame) for heard in request.heard)
    return (
        f"Workers:\n{worker_lines(request)}"
        f"Limits: {'; '.join(_limits(request))}\n"
        f"<question>\n{question}\n</question>\n{results}"
    )


def _limits(request: PlanRequest) -> Iterator[str]:
    pool = PlanPool.of(request)
    yield f"at most {pool.max_steps} steps and {pool.max_calls} calls of workers"
    yield "tools: " + (", ".join(sorted(pool.builtins)) or "none")
    yield f"$1 a thousand counts as {figure(request.cost_weight)} of being right"
    if request.rounds_left:
        yield f"{request.rounds_left} more rounds may follow"
    if pool.first:
        yield f"the first step is number {pool.first}"
    if pool.may_stop:
        yield "no line keeps the answer that stands"


def _result(heard: Heard, frame: Frame) -> str:
    who = "" if heard.worker is None else f" by {heard.worker}"
    answer = _quoted(heard.answer, MAX_ANSWER_CHARS, frame) or "(failed)"
    return f"<result {heard.step}{who}>\n{answer}\n</result>\n"


_QUOTES = ("<question", "</question", "<result", "</result")


def _quoted(text: str, longest: int, frame: Frame) -> str:
    """Another's text, cut to its two ends, valid Unicode, without a mark that ends the quotation
    or that the model takes for a command."""
    text = ends(text, longest).encode("utf-8", "replace").decode()
    for mark in (*_QUOTES, *frame.control):
        text = text.replace(mark, f"{mark[0]} {mark[1:]}")
    return text
