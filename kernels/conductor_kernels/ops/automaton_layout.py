"""Where what lies in the int32 tensors of the device's automaton. `devicetables.py` writes them.

`grammar` is one tokenizer's: numbers first, then tables, each found by a number that says where it
begins. `arena` holds what requests permit, in cells that name each other by place: 0 names none.
`state` has a row for each sequence. Numbers of places and nodes are those of `conductor.plan`.
"""

from __future__ import annotations

# Of `state`: int32 [B, STATE].
STATE = 16
"""Numbers of a sequence; a power of two, so that a row is one load."""
LINE, PLACE, NAME, ROW, VIEW, USED, NODE = range(7)
"""Where the plan stands: as `conductor.plan.writing.State`, with the cells of line and row, and the
name as its number in a line's names."""
RUN = 7
"""The cell of the next forced token; 0 where there is a choice."""
ENDED = 8
"""0 while the plan is being written, then one of the two below."""
OVER, REFUSED = 1, 2
"""Ended as it should, or at its longest; a token came that is not allowed."""
WRITTEN, MOST = 9, 10
"""Tokens so far, and at which number it ends at the latest."""
DRAWN = 11
"""Tokens that were chosen, the forced ones left out: what draws are keyed by."""
FORCED = 12
"""Whether the last token was a forced one."""

# Of `grammar`: numbers, then where a table begins.
TOKENS, CLASSES, PLACES, ACCESS, HEAD, WORD, OPEN, DASH_DONE, DONE, MOST_BYTES = range(10)
"""How many there are; places and nodes; most bytes of a text."""
SEARCH = 10
"""Halvings that find a token among those that go on with a fixed text."""
CANDIDATES = 11
"""How many tokens can be allowed where only few are."""
CLASS_OF, LENGTH = 12, 13
"""[tokens]"""
WALKED = 14
"""[tokens] where the bytes of a token begin that may stand in a head; else one of the two below."""
NOT_WALKED, ENDS = -1, -2
NEXT = 15
"""[places x classes] the place after a token."""
SHAPE = 16
"""[places x 256] the place after a byte."""
NEED = 17
"""[places] bytes that a text must still get."""
TREE = 18
"""[nodes x 256] the node after a byte."""
EDGE_START, EDGE_TOKEN, EDGE_NEXT = 19, 20, 21
"""[nodes + 1], and the tokens that go on with a fixed text, as `conductor.plan.tokentables`."""
RUN_OF = 22
"""[nodes] which of a line's runs follows, -1 for none."""
CANDIDATE = 23
"""[candidates] rising ids."""
GRAMMAR = 24
"""How many numbers there are before the tables."""

# Of a line's cells.
NUMBER, MAY_END, WORKERS, START_RUN, FIXED_RUNS, NEWLINE_RUN, NAMES = range(7)
"""Its step's number; whether a plan may end there; workers; the run at its beginning; where the
runs are that end a fixed text before it, the last of them a built-in's; the run that ends a text at
its most bytes before it. Then [names] the row of a name, or `BEGINS`, and [names] runs."""
BEGINS = -1
"""No whole name, but the beginning of one."""
BUILTIN_NAMES = 10
"""After the workers: `redact` by its beginnings, 1 letter to 6, then `vote`."""
VOTE = 6

# Of a row's cells. It has 2 << number views.
BUILTIN, ACCESS_RUN, VIEWS = range(3)
"""Whether it is one; the run after the name; then [views + 1] 4 x how many views before it are
permitted + 1 if it may be shown bare + 2 if with words; [views] the next line after a bare text;
[views] after one with words; [views] runs after a view; [views] runs after its comma."""
