"""The automaton's tables of one tokenizer as the one int32 tensor that the ops read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import pairwise

import torch
from torch import Tensor

from conductor.plan.byteshape import ACCESS, HEAD, LINE, NEED, NEXT, PLACES
from conductor.plan.fixedtexts import BEFORE, DASH_DONE, DONE, OPEN, STRAYED, TREE
from conductor.plan.language import MAX_SUBTASK_BYTES
from conductor.plan.tokentables import Tables
from conductor_kernels.ops import automaton_layout as at

WORD = PLACES.index("word")
assert (LINE, BEFORE, STRAYED) == (0, 0, -1)  # as the ops have it


def crosses_lines(tables: Tables) -> bool:
    """Whether some token ends a line and begins another. The device's automaton knows no such
    tokens; no tokenizer in use has one, since all of them keep line ends apart."""
    return any(b"\n" in tables.bytes_of(token)[:-1] for token in tables.walked)


def grammar_of(tables: Tables) -> Tensor:
    """int32 [G], see `ops/automaton_layout.py`."""
    spelled, walked = _walked(tables)
    parts: dict[int, Sequence[int]] = {
        at.CLASS_OF: tables.class_of,
        at.LENGTH: tables.length,
        at.NEXT: tables.next,
        at.SHAPE: [place for row in NEXT for place in row],
        at.NEED: NEED,
        at.TREE: [node.get(byte, STRAYED) for node in TREE for byte in range(256)],
        at.EDGE_START: tables.fixed_start,
        at.EDGE_TOKEN: tables.fixed_token,
        at.EDGE_NEXT: tables.fixed_next,
        at.RUN_OF: _run_of(tables),
        at.CANDIDATE: sorted({*tables.walked, *tables.fixed_token, *tables.eos}),
    }
    numbers = {
        at.TOKENS: tables.tokens, at.CLASSES: tables.classes, at.PLACES: len(PLACES),
        at.ACCESS: ACCESS, at.HEAD: HEAD, at.WORD: WORD, at.OPEN: OPEN, at.DASH_DONE: DASH_DONE,
        at.DONE: DONE, at.MOST_BYTES: MAX_SUBTASK_BYTES,
        at.SEARCH: _longest_row(tables.fixed_start).bit_length(),
        at.CANDIDATES: len(parts[at.CANDIDATE]),
    }  # fmt: skip
    cells = [0] * at.GRAMMAR + [*spelled]
    for which, number in numbers.items():
        cells[which] = number
    parts[at.WALKED] = [code + at.GRAMMAR if code >= 0 else code for code in walked]
    for which, part in parts.items():
        cells[which] = len(cells)
        cells.extend(part)
    return torch.tensor(cells, dtype=torch.int32)


def _walked(tables: Tables) -> tuple[bytes, list[int]]:
    """The bytes of all tokens that may stand in a head, and where each token's begin."""
    spelled, walked = b"", [at.NOT_WALKED] * tables.tokens
    for token in tables.walked:
        walked[token] = len(spelled)
        spelled += tables.bytes_of(token)
    for token in tables.eos:
        walked[token] = at.ENDS
    return spelled, walked


def _longest_row(starts: Sequence[int]) -> int:
    return max(end - start for start, end in pairwise(starts))


def _run_of(tables: Tables) -> list[int]:
    numbers = {node: number for number, node in enumerate(forced_nodes(tables))}
    return [numbers.get(node, -1) for node in range(len(TREE))]


@cache
def forced_nodes(tables: Tables) -> tuple[int, ...]:
    """Nodes of the fixed texts that a chosen token can lead to and where only one text goes on.
    `OPEN`, where that is so for built-ins alone, comes last."""
    choices = [node for node, after in enumerate(TREE) if len(after) > 1 or node in (BEFORE, OPEN)]
    led_to = {node for choice in choices for node in _led_to(tables, choice)}
    return (*sorted(node for node in led_to if len(TREE[node]) == 1 and node != OPEN), OPEN)


def _led_to(tables: Tables, node: int) -> Iterable[int]:
    start, end = tables.fixed_start[node : node + 2]
    return tables.fixed_next[start:end]
