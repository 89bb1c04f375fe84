"""The texts that tell nothing of the question, as a tree of bytes: the lone `-` and the templates.

While a text is being written, its node says whether it still is the beginning of one of them. The
tree begins before the space that ends a head and goes on through the newline that ends the line.
"""

from __future__ import annotations

from conductor.plan.templates import Template

STRAYED = -1
"""The node of a text that is none of them."""
BEFORE, OPEN, DASH, DASH_DONE, DONE = range(5)
"""Before the head's space; after it; after the lone `-`; after its newline; after a template's."""
NEWLINE = 0x0A
FIXED = (" -\n", *(f" {template}\n" for template in Template))


def _tree() -> tuple[dict[int, int], ...]:
    nodes: list[dict[int, int]] = [{ord(" "): OPEN}, {ord("-"): DASH}, {NEWLINE: DASH_DONE}, {}, {}]
    for text in FIXED[1:]:
        node = BEFORE
        for byte in text[:-1].encode():
            if byte not in nodes[node]:
                nodes.append({})
                nodes[node][byte] = len(nodes) - 1
            node = nodes[node][byte]
        nodes[node][NEWLINE] = DONE
    return tuple(nodes)


TREE = _tree()
"""`TREE[node]` maps each byte that goes on with a fixed text to the node after it."""


def follow(node: int, byte: int) -> int:
    """The node after one more byte, or `STRAYED`."""
    return STRAYED if node == STRAYED else TREE[node].get(byte, STRAYED)


def is_fixed(node: int) -> bool:
    """Whether a text that ended here would be one of the fixed ones."""
    return node != STRAYED and NEWLINE in TREE[node]
