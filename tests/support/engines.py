"""Plans of a pool without a mask, as grammars for the two engines that others use.

They know neither labels nor the bound on a subtask: where those decide, they are no measure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

CONTROL = r"\x00-\x1f\x7f-\x9f\u2028\u2029"


def access_lists(number: int) -> list[str]:
    """Every access list of the step of that number."""
    sets = [c for n in range(number + 1) for c in combinations(range(number), n)]
    named = [[*mark, *map(str, steps)] for steps in sets for mark in (["q"], [])]
    return ["*", "-", *(",".join(names) for names in named if names)]


def heads(workers: int, number: int) -> list[str]:
    return [f"{w} {access} " for w in range(workers) for access in access_lists(number)]


def redactions(number: int) -> list[str]:
    return [f"redact {name} -\n" for name in ("q", *map(str, range(number)))] + (
        ["redact * -\n"] if number == 0 else []
    )


def votes(number: int) -> list[str]:
    return [f"vote {access} -\n" for access in access_lists(number) if access.strip("-q")]


def ebnf(workers: int, steps: int) -> str:
    """For xgrammar."""

    def any_of(texts: list[str]) -> str:
        return " | ".join('"' + text.replace("\n", "\\n") + '"' for text in texts)

    rules = ["root ::= line0"]
    for number in range(steps):
        last = number + 1 == steps
        following = "" if last else f" line{number + 1}?"
        rules.append(f"head{number} ::= {any_of(heads(workers, number))}")
        answer = f"head{number} text"
        if number:
            rules.append(f"vote{number} ::= {any_of(votes(number))}")
            answer = f"({answer} | vote{number})"
        line = f"{answer}{following}"
        if not last:
            rules.append(f"redact{number} ::= {any_of(redactions(number))}")
            line += f" | redact{number} line{number + 1}"
        rules.append(f"line{number} ::= {line}")
    return "\n".join([*rules, rf'text ::= [^ {CONTROL}] ([^{CONTROL}]* [^ {CONTROL}])? "\n"'])


def regex(workers: int, steps: int) -> str:
    """For llguidance: all plans as one regular expression."""

    def any_of(texts: list[str]) -> str:
        quoted = (text.replace("*", "\\*").replace("\n", "\\n") for text in texts)
        return "(" + "|".join(quoted) + ")"

    control = CONTROL.replace(r"\u2028\u2029", r"\u{2028}\u{2029}")
    text = rf"[^ {control}]([^{control}]*[^ {control}])?\n"
    lines = ""
    for number in reversed(range(steps)):
        answer = any_of(heads(workers, number)) + text
        answer = f"({answer}|{any_of(votes(number))})" if number else answer
        redacting = f"|{any_of(redactions(number))}{lines}"
        lines = f"({answer}({lines})?{redacting})" if lines else answer
    return lines


class Guidance:
    """llguidance, walked along with the automaton."""

    def __init__(self, grammar: str, vocabulary: Sequence[bytes | None], eos: int) -> None:
        import llguidance

        self._tokenizer = llguidance.LLTokenizer(_wrapped(vocabulary, eos))
        made = llguidance.LLMatcher.grammar_from_regex(grammar)
        self._matcher = llguidance.LLMatcher(self._tokenizer, made)
        assert not self._matcher.is_error(), self._matcher.get_error()

    def restart(self) -> None:
        self._matcher.reset()

    def mask(self) -> bytes:
        return bytes(self._matcher.compute_bitmask())

    def take(self, token: int) -> None:
        assert self._matcher.consume_token(token), "the engine refuses the token"


def _wrapped(vocabulary: Sequence[bytes | None], eos: int) -> Any:
    from llguidance import TokenizerWrapper

    by_bytes = {text: i for i, text in enumerate(vocabulary) if text}

    class Source:
        eos_token_id = eos
        bos_token_id = None
        tokens = [text or f"<|{i}|>".encode() for i, text in enumerate(vocabulary)]  # noqa: RUF012
        special_token_ids = [i for i, text in enumerate(vocabulary) if not text]  # noqa: RUF012

        def __call__(self, text: bytes) -> list[int]:
            return [by_bytes[bytes([byte])] for byte in text]

    return TokenizerWrapper(Source())


class XGrammar:
    """xgrammar, walked along with the automaton."""

    def __init__(self, grammar: str, vocabulary: Sequence[bytes | None], eos: int) -> None:
        import xgrammar

        tokens = [text or b"" for text in vocabulary]
        info = xgrammar.TokenizerInfo(
            tokens, xgrammar.VocabType.RAW, vocab_size=len(tokens), stop_token_ids=[eos]
        )
        compiled = xgrammar.GrammarCompiler(info, max_threads=1).compile_grammar(grammar)
        self._matcher = xgrammar.GrammarMatcher(compiled)
        self._bits = xgrammar.allocate_token_bitmask(1, len(tokens))

    def restart(self) -> None:
        self._matcher.reset()

    def mask(self) -> bytes:
        self._matcher.fill_next_token_bitmask(self._bits)
        return bytes(self._bits.numpy().tobytes())

    def take(self, token: int) -> None:
        assert self._matcher.accept_token(token), "the engine refuses the token"
