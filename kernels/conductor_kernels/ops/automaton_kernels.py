"""The automaton's transition as kernels, in lanes: what `automaton_reference.py` does in torch.

One function says where a token leads, for one token in a step and for all in a mask, so the two
cannot disagree. Nothing here is wide: a sequence in a text reads a few numbers for each token.
"""

from __future__ import annotations

from conductor_kernels.language import jit, tl
from conductor_kernels.ops import automaton_layout as at


@jit
def _views(arena, row, view, alive):
    return tl.load(arena + row + at.VIEWS + view, mask=alive, other=0)


@jit
def _may_follow(grammar, arena, row, flags, node, alive):
    """Whether a fixed text may go on to that node."""
    dash_done = tl.load(grammar + at.DASH_DONE)
    nothing = (node >= tl.load(grammar + at.OPEN)) & (node <= dash_done)
    calls = tl.load(arena + row + at.BUILTIN, mask=alive, other=0) == 0
    return ((flags & 1) > 0) & (nothing | ((node > dash_done) & calls))


@jit
def _next_line(arena, line, row, view, worded, alive):
    number = tl.load(arena + line + at.NUMBER, mask=alive, other=0)
    size = 2 << number
    offset = at.VIEWS + 1 + tl.where(worded, 2, 1) * size
    return tl.load(arena + row + offset + view, mask=alive, other=0)


@jit
def _name_byte(arena, line, place, name, byte, alive):
    """Of a worker's name: the name and the row after a byte, and whether it may come."""
    workers = tl.load(arena + line + at.WORKERS, mask=alive, other=0)
    digit = (byte >= 48) & (byte < 58)
    space = byte == 32
    first = workers + tl.where(byte == 118, at.VOTE, 0)
    letter = tl.where(place == 0, first, name + 1)
    longer = tl.where(digit, name * 10 + byte - 48, letter)
    longer = tl.where(space, name, longer)
    alive = alive & ~(digit & (longer >= workers))
    row = tl.load(arena + line + at.NAMES + longer, mask=alive, other=0)
    known = alive & tl.where(space, row > 0, row != 0)
    return tl.where(space, 0, longer), tl.where(space, row, 0), known


@jit
def _access_byte(arena, line, row, view, byte, alive):
    """Of an access list: the view after a byte, and whether it may come. The views that begin alike
    lie side by side, and each knows how many before it are permitted."""
    number = tl.load(arena + line + at.NUMBER, mask=alive, other=0)
    question = 1 << number
    below = number - 1 - (byte - 48)
    later = tl.where((byte >= 48) & (byte < 58) & (below >= 0), 1 << tl.maximum(below, 0), 0)
    first = view | later
    count = later
    first = tl.where(byte == 32, view, first)
    count = tl.where(byte == 32, 1, count)
    first = tl.where(byte == 44, view + 1, first)
    count = tl.where(byte == 44, (view & -view) - 1, count)
    first = tl.where(byte == 42, 2 * question - 1, first)
    count = tl.where(byte == 42, 1, count)
    first = tl.where(byte == 45, 0, first)
    count = tl.where(byte == 45, 1, count)
    first = tl.where(byte == 113, question, first)
    count = tl.where(byte == 113, question, count)
    alive = alive & (count > 0)
    before = _views(arena, row, first, alive) >> 2
    behind = _views(arena, row, first + count, alive) >> 2
    keeps = (byte == 32) | (byte == 44)
    return tl.where(keeps, view, first), alive & (behind > before)


@jit
def _text_byte(grammar, arena, line, row, view, used, node, shape, byte, alive):
    """Of a text: the node after a byte, the line after it, and whether it may come."""
    flags = _views(arena, row, view, alive)
    on = alive & (node >= 0)
    tree = tl.load(grammar + at.TREE)
    after = tl.load(grammar + tree + node * 256 + byte, mask=on, other=-1)
    fits = _may_follow(grammar, arena, row, flags, after, alive)
    worded = (flags & 2) > 0
    need = tl.load(grammar + tl.load(grammar + at.NEED) + shape, mask=alive, other=0)
    goes = fits | (worded & (used + 1 + need <= tl.load(grammar + at.MOST_BYTES)))
    newline = byte == 10
    ends = ((after >= 0) & fits) | ((after < 0) & worded)
    allowed = alive & ((newline & ends) | (~newline & goes))
    following = _next_line(arena, line, row, view, after < 0, allowed & newline)
    return after, following, allowed


@jit
def _byte(grammar, arena, line, place, name, row, view, used, node, byte, alive):
    """The state after one more byte, in the lanes that are alive; a place of -1: none."""
    shapes = tl.load(grammar + at.SHAPE)
    shape = tl.load(grammar + shapes + place * 256 + byte, mask=alive & (place >= 0), other=-1)
    alive = alive & (shape >= 0)
    in_name = place < tl.load(grammar + at.ACCESS)
    in_text = place >= tl.load(grammar + at.HEAD)
    in_access = ~in_name & ~in_text
    name1, row1, ok1 = _name_byte(arena, line, place, name, byte, alive & in_name)
    view2, ok2 = _access_byte(arena, line, row, view, byte, alive & in_access)
    node3, line3, ok3 = _text_byte(
        grammar, arena, line, row, view, used, node, shape, byte, alive & in_text
    )
    starts = in_access & (byte == 32)
    newline = in_text & (byte == 10)
    place = tl.where(ok1 | ok2 | ok3, shape, -1)
    line = tl.where(newline, line3, line)
    name = tl.where(in_name, name1, 0)
    row = tl.where(in_name, row1, tl.where(newline, 0, row))
    view = tl.where(in_access, view2, tl.where(newline, 0, view))
    used = tl.where(starts, 0, tl.where(newline, -1, tl.where(in_text, used + 1, used)))
    follows = tl.where(newline, 0, tl.where(in_text, node3, node))
    node = tl.where(starts, tl.load(grammar + at.OPEN), follows)
    return line, place, name, row, view, used, node


@jit
def _edge(grammar, node, tokens, LANES: tl.constexpr):
    """The node of the fixed texts after a token, -1 where it strays."""
    found = tl.full([LANES], -1, tl.int32)
    if node >= 0:
        starts = grammar + tl.load(grammar + at.EDGE_START)
        edges = grammar + tl.load(grammar + at.EDGE_TOKEN)
        begin = tl.load(starts + node)
        end = tl.load(starts + node + 1)
        low = tl.full([LANES], 0, tl.int32) + begin
        high = tl.full([LANES], 0, tl.int32) + end
        for _ in range(tl.load(grammar + at.SEARCH)):
            middle = (low + high) // 2
            open = low < high
            below = open & (tl.load(edges + middle, mask=open, other=0) < tokens)
            low = tl.where(below, middle + 1, low)
            high = tl.where(below, high, middle)
        there = low < end
        there = there & (tl.load(edges + low, mask=there, other=-1) == tokens)
        nexts = grammar + tl.load(grammar + at.EDGE_NEXT)
        found = tl.load(nexts + low, mask=there, other=-1)
    return found


@jit
def complete(grammar, arena, place, row, view):
    """Whether an access list may be left as it is; of one state."""
    inside = (place >= tl.load(grammar + at.ACCESS)) & (place < tl.load(grammar + at.HEAD))
    shape = tl.load(grammar + tl.load(grammar + at.SHAPE) + place * 256 + 32, mask=inside, other=-1)
    before = _views(arena, row, view, inside) >> 2
    behind = _views(arena, row, view + 1, inside) >> 2
    return inside & (shape >= 0) & (behind > before)


@jit
def after(grammar, arena, line, place, name, row, view, used, node, tokens, LANES: tl.constexpr):
    """Where each token leads from one state: a place of -1 if nowhere, of the number of places
    after the end."""
    head = tl.load(grammar + at.HEAD)
    known = (tokens >= 0) & (tokens < tl.load(grammar + at.TOKENS))
    walked_at = grammar + tl.load(grammar + at.WALKED)
    walked = tl.load(walked_at + tokens, mask=known, other=at.NOT_WALKED)
    size = tl.load(grammar + tl.load(grammar + at.LENGTH) + tokens, mask=known, other=0)
    in_head = place < head
    walks = (walked >= 0) & in_head
    leaves = complete(grammar, arena, place, row, view)
    textual = known & (walked != at.ENDS) & ~walks & (~in_head | leaves)

    # Within a text, or from a complete access list into it.
    from_place = tl.where(in_head, head, place)
    from_used = tl.where(in_head, -1, used)
    from_node = tl.where(in_head, 0, node)
    kind = tl.load(grammar + tl.load(grammar + at.CLASS_OF) + tokens, mask=textual, other=0)
    moves = grammar + tl.load(grammar + at.NEXT) + from_place * tl.load(grammar + at.CLASSES)
    next_place = tl.load(moves + kind, mask=textual, other=-1)
    textual = textual & (next_place >= 0)
    next_node = _edge(grammar, from_node, tokens, LANES)
    flags = _views(arena, row, view, row > 0)
    worded = (flags & 2) > 0
    fits = _may_follow(grammar, arena, row, flags, next_node, row > 0)
    need = tl.load(grammar + tl.load(grammar + at.NEED) + next_place, mask=textual, other=0)
    most = tl.load(grammar + at.MOST_BYTES)
    goes = (next_place >= head) & (fits | (worded & (from_used + size + need <= most)))
    fixed = (next_node == tl.load(grammar + at.DASH_DONE)) | (
        next_node == tl.load(grammar + at.DONE)
    )
    ends = (fixed & fits) | (~fixed & (worded & (from_used + size - 1 <= most)))
    newline = next_place == 0
    textual = textual & ((newline & ends) | (~newline & goes))
    zero = tl.full([LANES], 0, tl.int32)
    next_line = _next_line(arena, zero + line, zero + row, zero + view, ~fixed, textual & newline)
    to_place = tl.where(textual, next_place, -1)
    to_line = tl.where(newline, next_line, line)
    to_name = zero
    to_row = tl.where(newline, 0, row)
    to_view = tl.where(newline, 0, view)
    to_used = tl.where(newline, -1, from_used + size)
    to_node = tl.where(newline, 0, next_node)

    # In a head, byte by byte.
    w_line, w_place, w_name = zero + line, zero + place, zero + name
    w_row, w_view, w_used, w_node = zero + row, zero + view, zero + used, zero + node
    number = 0
    going = tl.max(walks.to(tl.int32), 0)
    while going > 0:
        alive = walks & (number < size) & (w_place >= 0)
        byte = tl.load(grammar + walked + number, mask=alive, other=0)
        n_line, n_place, n_name, n_row, n_view, n_used, n_node = _byte(
            grammar, arena, w_line, w_place, w_name, w_row, w_view, w_used, w_node, byte, alive
        )
        w_line = tl.where(alive, n_line, w_line)
        w_place = tl.where(alive, n_place, w_place)
        w_name = tl.where(alive, n_name, w_name)
        w_row = tl.where(alive, n_row, w_row)
        w_view = tl.where(alive, n_view, w_view)
        w_used = tl.where(alive, n_used, w_used)
        w_node = tl.where(alive, n_node, w_node)
        number += 1
        going = tl.max((walks & (number < size) & (w_place >= 0)).to(tl.int32), 0)

    may_end = (place == 0) & (tl.load(arena + line + at.MAY_END) > 0)
    over = (walked == at.ENDS) & may_end
    to_place = tl.where(walks, w_place, tl.where(over, tl.load(grammar + at.PLACES), to_place))
    to_line = tl.where(walks, w_line, to_line)
    to_name = tl.where(walks, w_name, to_name)
    to_row = tl.where(walks, w_row, to_row)
    to_view = tl.where(walks, w_view, to_view)
    to_used = tl.where(walks, w_used, to_used)
    to_node = tl.where(walks, w_node, to_node)
    return to_line, to_place, to_name, to_row, to_view, to_used, to_node


@jit
def run_after(grammar, arena, line, place, name, row, view, used, node, alive):
    """The cell of what is forced in one state; 0 where there is a choice."""
    access, head = tl.load(grammar + at.ACCESS), tl.load(grammar + at.HEAD)
    size = 2 << tl.load(arena + line + at.NUMBER)
    names = tl.load(arena + line + at.WORKERS) + at.BUILTIN_NAMES
    in_text = alive & (place >= head)
    in_access = alive & (place > access) & (place < head)
    in_name = alive & (place > 0) & (place < access)
    # Its cell, wherever it stands before a text.
    shapes = grammar + tl.load(grammar + at.SHAPE)
    comma = tl.load(shapes + place * 256 + 32, mask=in_access, other=0) < 0
    cell = row + at.VIEWS + 1 + tl.where(comma, 4, 3) * size + view
    cell = tl.where(in_name, line + at.NAMES + names + name, cell)
    cell = tl.where(place == access, row + at.ACCESS_RUN, cell)
    cell = tl.where(place == 0, line + at.START_RUN, cell)
    run = tl.load(arena + cell, mask=alive & ~in_text, other=0)
    # Its cell in a text: the line after it knows.
    worded = (_views(arena, row, view, in_text) & 2) > 0
    following = _next_line(arena, line, row, view, worded, in_text)
    full = (place == tl.load(grammar + at.WORD)) & (used == tl.load(grammar + at.MOST_BYTES))
    newline = tl.load(arena + following + at.NEWLINE_RUN, mask=in_text & worded & full, other=0)
    bare = in_text & ~worded
    which = tl.load(grammar + tl.load(grammar + at.RUN_OF) + node, mask=bare, other=-1)
    calls = tl.load(arena + row + at.BUILTIN, mask=bare, other=0) == 0
    forced = bare & (which >= 0) & ~((node == tl.load(grammar + at.OPEN)) & calls)
    runs = tl.load(arena + following + at.FIXED_RUNS, mask=forced, other=0)
    fixed = tl.load(arena + runs + which, mask=forced, other=0)
    return tl.where(in_text, tl.where(worded, newline, fixed), run)
