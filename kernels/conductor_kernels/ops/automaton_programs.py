"""The kernels that `automaton.py` starts: a step, a mask, and its list.

Where a token leads is `automaton_kernels.py`'s; here are the sequences' states and the masks.
"""

from __future__ import annotations

from conductor_kernels.language import jit, tl
from conductor_kernels.ops import automaton_layout as at
from conductor_kernels.ops.automaton_kernels import after, complete, run_after


@jit
def step_kernel(state, token, grammar, arena, LANES: tl.constexpr):
    row_at = state + tl.program_id(0) * at.STATE
    if tl.load(row_at + at.ENDED) == 0:
        line = tl.load(row_at + at.LINE)
        place = tl.load(row_at + at.PLACE)
        name = tl.load(row_at + at.NAME)
        row = tl.load(row_at + at.ROW)
        view = tl.load(row_at + at.VIEW)
        used = tl.load(row_at + at.USED)
        node = tl.load(row_at + at.NODE)
        run = tl.load(row_at + at.RUN)
        first = tl.arange(0, LANES) == 0
        # In the other lanes a token that is none.
        tokens = tl.where(first, tl.load(token + tl.program_id(0)), -1)
        lines, places, names, rows, views, useds, nodes = after(
            grammar, arena, line, place, name, row, view, used, node, tokens, LANES
        )
        place = tl.sum(tl.where(first, places, 0), 0)
        if place < 0:
            tl.store(row_at + at.ENDED, at.REFUSED)
        else:
            line = tl.sum(tl.where(first, lines, 0), 0)
            name = tl.sum(tl.where(first, names, 0), 0)
            row = tl.sum(tl.where(first, rows, 0), 0)
            view = tl.sum(tl.where(first, views, 0), 0)
            used = tl.sum(tl.where(first, useds, 0), 0)
            node = tl.sum(tl.where(first, nodes, 0), 0)
            ended = place == tl.load(grammar + at.PLACES)
            forced = run > 0
            later = tl.load(arena + run + 1, mask=forced, other=0)
            begins = run_after(
                grammar, arena, line, place, name, row, view, used, node, ~forced & ~ended
            )
            written = tl.load(row_at + at.WRITTEN) + 1
            over = ended | (written >= tl.load(row_at + at.MOST))
            drawn = tl.load(row_at + at.DRAWN)
            tl.store(row_at + at.LINE, line)
            tl.store(row_at + at.PLACE, place)
            tl.store(row_at + at.NAME, name)
            tl.store(row_at + at.ROW, row)
            tl.store(row_at + at.VIEW, view)
            tl.store(row_at + at.USED, used)
            tl.store(row_at + at.NODE, node)
            tl.store(row_at + at.RUN, tl.where(forced, later, begins))
            tl.store(row_at + at.ENDED, tl.where(over, at.OVER, 0))
            tl.store(row_at + at.WRITTEN, written)
            tl.store(row_at + at.DRAWN, tl.where(forced, drawn, drawn + 1))
            tl.store(row_at + at.FORCED, forced.to(tl.int32))


@jit
def mask_kernel(bits, state, grammar, arena, vocabulary, words, LANES: tl.constexpr):
    row_at = state + tl.program_id(0) * at.STATE
    lane = tl.arange(0, LANES)
    tokens = tl.program_id(1) * LANES + lane
    allowed = tokens < 0
    if tl.load(row_at + at.ENDED) == 0:
        run = tl.load(row_at + at.RUN)
        if run > 0:
            allowed = tokens == tl.load(arena + run)
        else:
            _, places, _, _, _, _, _ = after(
                grammar,
                arena,
                tl.load(row_at + at.LINE),
                tl.load(row_at + at.PLACE),
                tl.load(row_at + at.NAME),
                tl.load(row_at + at.ROW),
                tl.load(row_at + at.VIEW),
                tl.load(row_at + at.USED),
                tl.load(row_at + at.NODE),
                tl.where(tokens < vocabulary, tokens, -1),
                LANES,
            )
            allowed = places >= 0
    # Each bit once, so that the sum is their union.
    packed = tl.sum(tl.reshape(allowed.to(tl.int32) << (lane % 32), (LANES // 32, 32)), 1)
    word = tl.program_id(1) * (LANES // 32) + tl.arange(0, LANES // 32)
    tl.store(bits + tl.program_id(0) * words + word, packed, mask=word < words)


@jit
def list_kernel(
    rows,
    count,
    bits,
    state,
    grammar,
    arena,
    vocabulary,
    words,
    MOST: tl.constexpr,
    LANES: tl.constexpr,
):
    one = tl.program_id(0)
    row_at = state + one * at.STATE
    run = tl.load(row_at + at.RUN)
    found = 0
    if tl.load(row_at + at.ENDED) == 0:
        if run > 0:
            tl.store(rows + one * MOST, tl.load(arena + run))
            found = 1
        else:
            place = tl.load(row_at + at.PLACE)
            row = tl.load(row_at + at.ROW)
            view = tl.load(row_at + at.VIEW)
            leaves = complete(grammar, arena, place, row, view)
            flags = tl.load(arena + row + at.VIEWS + view, mask=row > 0, other=0)
            in_text = place >= tl.load(grammar + at.HEAD)
            if ((flags & 2) > 0) & (in_text | leaves):
                found = -1
            else:
                candidates = tl.load(grammar + at.CANDIDATES)
                listed = grammar + tl.load(grammar + at.CANDIDATE)
                for start in range(0, candidates, LANES):
                    lane = start + tl.arange(0, LANES)
                    token = tl.load(listed + lane, mask=lane < candidates, other=0)
                    there = (lane < candidates) & (token < vocabulary)
                    word = tl.load(bits + one * words + token // 32, mask=there, other=0)
                    allowed = ((word >> (token % 32)) & 1) * there.to(tl.int32)
                    position = found + tl.cumsum(allowed, 0) - allowed
                    keeps = (allowed > 0) & (position < MOST)
                    tl.store(rows + one * MOST + position, token, mask=keeps)
                    found += tl.sum(allowed, 0)
                if found > MOST:
                    found = -1
    for start in range(0, MOST, LANES):
        lane = start + tl.arange(0, LANES)
        tl.store(rows + one * MOST + lane, 0, mask=lane >= tl.maximum(found, 0))
    tl.store(count + one, found)
