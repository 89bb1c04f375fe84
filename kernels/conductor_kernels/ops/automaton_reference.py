"""The automaton's transition in plain torch: one state, many tokens at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from conductor_kernels.ops import automaton_layout as at

_SPACE, _NEWLINE, _STAR, _COMMA, _DASH, _QUESTION, _VOTE = b" \n*,-qv"


@dataclass(frozen=True, eq=False)
class Lanes:
    """States side by side, int64 [N] each, as the first numbers of a state's row. A place of -1:
    no such state."""

    line: Tensor
    place: Tensor
    name: Tensor
    row: Tensor
    view: Tensor
    used: Tensor
    node: Tensor

    @classmethod
    def of(cls, state: Sequence[int], lanes: int) -> Lanes:
        """The same state in all lanes."""
        return cls(*(torch.full((lanes,), number) for number in state[: at.NODE + 1]))

    def where(self, condition: Tensor, other: Lanes) -> Lanes:
        """These where the condition holds, else the others."""
        mine, others = vars(self).values(), vars(other).values()
        return Lanes(*(torch.where(condition, a, b) for a, b in zip(mine, others, strict=True)))


class Machine:
    """Both tensors, and what may follow."""

    def __init__(self, grammar: Tensor, arena: Tensor) -> None:
        self._grammar, self._arena = grammar, arena
        self._numbers: list[int] = grammar[: at.GRAMMAR].tolist()

    def number(self, which: int) -> int:
        """One of the grammar's numbers."""
        return self._numbers[which]

    def table(self, which: int, index: Tensor | int) -> Tensor:
        """A table's entries. Where the index is none, whatever is there."""
        found = torch.as_tensor(index) + self._numbers[which]
        return self._grammar[found.clamp(0, len(self._grammar) - 1)].long()

    def spelled(self, index: Tensor) -> Tensor:
        """A byte of a walked token."""
        return self._grammar[index.clamp(0, len(self._grammar) - 1)].long()

    def cell(self, index: Tensor | int) -> Tensor:
        """The arena's. Where the index is none, whatever is there."""
        return self._arena[torch.as_tensor(index).clamp(0, len(self._arena) - 1)].long()

    def views(self, row: Tensor, view: Tensor) -> Tensor:
        return self.cell(row + at.VIEWS + view)

    def complete(self, lane: Lanes) -> Tensor:
        """Whether the access list may be left as it is."""
        in_access = (lane.place >= self.number(at.ACCESS)) & (lane.place < self.number(at.HEAD))
        ends = self.table(at.SHAPE, lane.place.clamp(min=0) * 256 + _SPACE) >= 0
        permitted = self.views(lane.row, lane.view) >> 2 < self.views(lane.row, lane.view + 1) >> 2
        return in_access & ends & permitted

    def may_follow(self, lane: Lanes, node: Tensor) -> Tensor:
        """Whether a fixed text may go on to that node."""
        bare = self.views(lane.row, lane.view) & 1 > 0
        nothing = (node >= self.number(at.OPEN)) & (node <= self.number(at.DASH_DONE))
        template = (node > self.number(at.DASH_DONE)) & (self.cell(lane.row + at.BUILTIN) == 0)
        return bare & (nothing | template)

    def worded(self, lane: Lanes) -> Tensor:
        """Whether the text may be in the planner's own words."""
        return self.views(lane.row, lane.view) & 2 > 0

    def next_line(self, lane: Lanes, worded: Tensor) -> Lanes:
        """The beginning of the line after."""
        size = 2 << self.cell(lane.line + at.NUMBER)
        offset = at.VIEWS + 1 + torch.where(worded, 2, 1) * size
        none = torch.zeros_like(lane.line)
        line = self.cell(lane.row + offset + lane.view)
        return Lanes(line, none, none, none, none, none - 1, none)


def after(machine: Machine, state: Sequence[int], tokens: Tensor) -> Lanes:
    """Where each of the tokens leads from a state. The place after the end is the number of
    places."""
    lane = Lanes.of(state, len(tokens))
    known = (tokens >= 0) & (tokens < machine.number(at.TOKENS))
    walked = torch.where(known, machine.table(at.WALKED, tokens), at.NOT_WALKED)
    in_head = lane.place < machine.number(at.HEAD)
    by_bytes = (walked >= 0) & in_head
    textual = known & (walked != at.ENDS) & ~by_bytes & (~in_head | machine.complete(lane))
    found = _by_token(machine, lane, tokens, textual)
    if by_bytes.any():
        found.place[by_bytes] = -1
        found = _put(found, by_bytes, _by_bytes(machine, lane, walked, tokens, by_bytes))
    ends = (walked == at.ENDS) & (lane.place == 0) & (machine.cell(lane.line + at.MAY_END) > 0)
    found.place[ends] = machine.number(at.PLACES)
    return found


def _put(found: Lanes, where: Tensor, some: Lanes) -> Lanes:
    for whole, part in zip(vars(found).values(), vars(some).values(), strict=True):
        whole[where] = part
    return found


def _by_bytes(
    machine: Machine, lane: Lanes, walked: Tensor, tokens: Tensor, which: Tensor
) -> Lanes:
    lane = Lanes(*(one[which] for one in vars(lane).values()))
    starts, length = walked[which], machine.table(at.LENGTH, tokens[which])
    for number in range(int(length.max())):
        going = (number < length) & (lane.place >= 0)
        if not going.any():
            break
        lane = _byte(machine, lane, machine.spelled(starts + number)).where(going, lane)
    return lane


def _by_token(machine: Machine, lane: Lanes, tokens: Tensor, textual: Tensor) -> Lanes:
    """Within a text, or from a complete access list into it."""
    from_head = lane.place < machine.number(at.HEAD)
    place = torch.where(from_head, machine.number(at.HEAD), lane.place)
    used, node = torch.where(from_head, -1, lane.used), torch.where(from_head, 0, lane.node)
    kind = machine.table(at.CLASS_OF, tokens)
    place = machine.table(at.NEXT, place * machine.number(at.CLASSES) + kind)
    node, size = _edge(machine, node, tokens), machine.table(at.LENGTH, tokens)
    fits, worded = machine.may_follow(lane, node), machine.worded(lane)
    most = machine.number(at.MOST_BYTES)
    goes = fits | (worded & (used + size + machine.table(at.NEED, place.clamp(min=0)) <= most))
    fixed = (node == machine.number(at.DASH_DONE)) | (node == machine.number(at.DONE))
    ends = torch.where(fixed, fits, worded & (used + size - 1 <= most))
    allowed = textual & torch.where(place == 0, ends, goes & (place >= machine.number(at.HEAD)))
    inside = replace(lane, place=place, name=lane.name * 0, used=used + size, node=node)
    found = machine.next_line(lane, ~fixed).where(place == 0, inside)
    return replace(found, place=torch.where(allowed, found.place, -1))


def _edge(machine: Machine, node: Tensor, tokens: Tensor) -> Tensor:
    """The node of the fixed texts after a token, -1 where it strays."""
    low = machine.table(at.EDGE_START, node.clamp(min=0))
    end = machine.table(at.EDGE_START, node.clamp(min=0) + 1)
    high = end
    for _ in range(machine.number(at.SEARCH)):
        middle = (low + high) // 2
        below = (low < high) & (machine.table(at.EDGE_TOKEN, middle) < tokens)
        low, high = torch.where(below, middle + 1, low), torch.where(below, high, middle)
    found = (node >= 0) & (low < end) & (machine.table(at.EDGE_TOKEN, low) == tokens)
    return torch.where(found, machine.table(at.EDGE_NEXT, low), -1)


def _byte(machine: Machine, lane: Lanes, byte: Tensor) -> Lanes:
    """One more byte, by the shape of plans and what the request permits."""
    shape = machine.table(at.SHAPE, lane.place.clamp(min=0) * 256 + byte)
    shape = torch.where(lane.place < 0, -1, shape)
    in_name, in_text = lane.place < machine.number(at.ACCESS), lane.place >= machine.number(at.HEAD)
    access = _in_access(machine, lane, byte, shape)
    text = _in_text(machine, lane, byte, shape)
    found = _in_name(machine, lane, byte, shape).where(in_name, text.where(in_text, access))
    return replace(found, place=torch.where(shape < 0, -1, found.place))


def _in_name(machine: Machine, lane: Lanes, byte: Tensor, shape: Tensor) -> Lanes:
    workers = machine.cell(lane.line + at.WORKERS)
    digit, space = (byte >= 48) & (byte < 58), byte == _SPACE
    first = workers + torch.where(byte == _VOTE, at.VOTE, 0)
    letter = torch.where(lane.place == 0, first, lane.name + 1)
    name = torch.where(digit, lane.name * 10 + byte - 48, letter)
    name = torch.where(space, lane.name, name)
    row = machine.cell(lane.line + at.NAMES + name)
    known = torch.where(space, row > 0, (row != 0) & ~(digit & (name >= workers)))
    return replace(
        lane,
        place=torch.where(known, shape, -1),
        name=torch.where(space, 0, name),
        row=torch.where(space, row, 0),
    )


def _in_access(machine: Machine, lane: Lanes, byte: Tensor, shape: Tensor) -> Lanes:
    number, view = machine.cell(lane.line + at.NUMBER), lane.view
    digit = (byte >= 48) & (byte < 58)
    after_it = number - 1 - (byte - 48)
    later = torch.where(digit & (after_it >= 0), 1 << after_it.clamp(0, 30), 0)
    question = 1 << number
    space, comma = byte == _SPACE, byte == _COMMA
    first, count = view | later, later
    for which, begin, many in (
        (space, view, torch.ones_like(view)),
        (comma, view + 1, (view & -view) - 1),
        (byte == _STAR, 2 * question - 1, torch.ones_like(view)),
        (byte == _DASH, torch.zeros_like(view), torch.ones_like(view)),
        (byte == _QUESTION, question, question),
    ):
        first, count = torch.where(which, begin, first), torch.where(which, many, count)
    before, behind = machine.views(lane.row, first), machine.views(lane.row, first + count)
    permitted = behind >> 2 > before >> 2
    return replace(
        lane,
        place=torch.where(permitted, shape, -1),
        view=torch.where(space | comma, view, first),
        used=torch.where(space, 0, lane.used),
        node=torch.where(space, machine.number(at.OPEN), lane.node),
    )


def _in_text(machine: Machine, lane: Lanes, byte: Tensor, shape: Tensor) -> Lanes:
    node = machine.table(at.TREE, lane.node.clamp(min=0) * 256 + byte)
    node = torch.where(lane.node < 0, -1, node)
    fits, worded = machine.may_follow(lane, node), machine.worded(lane)
    most = machine.number(at.MOST_BYTES)
    goes = fits | (worded & (lane.used + 1 + machine.table(at.NEED, shape.clamp(min=0)) <= most))
    newline = byte == _NEWLINE
    allowed = torch.where(newline, torch.where(node >= 0, fits, worded), goes)
    inside = replace(lane, place=shape, used=lane.used + 1, node=node)
    found = machine.next_line(lane, node < 0).where(newline, inside)
    return replace(found, place=torch.where(allowed, found.place, -1))


def run_after(machine: Machine, state: Sequence[int]) -> int:
    """The cell of what is forced in a state; 0 where there is a choice."""
    line, place, name, row, view, used, node = state[: at.NODE + 1]

    def cell(index: int) -> int:
        return int(machine.cell(index))

    if place == machine.number(at.PLACES):
        return 0
    if place == 0:
        return cell(line + at.START_RUN)
    if place < machine.number(at.ACCESS):
        names = cell(line + at.WORKERS) + at.BUILTIN_NAMES
        return cell(line + at.NAMES + names + name)
    if place == machine.number(at.ACCESS):
        return cell(row + at.ACCESS_RUN)
    size = 2 << cell(line + at.NUMBER)
    if place < machine.number(at.HEAD):
        after_comma = int(machine.table(at.SHAPE, place * 256 + _SPACE)) < 0
        return cell(row + at.VIEWS + 1 + (4 if after_comma else 3) * size + view)
    worded = cell(row + at.VIEWS + view) & 2 > 0
    following = cell(row + at.VIEWS + 1 + (2 if worded else 1) * size + view)
    if worded:
        full = place == machine.number(at.WORD) and used == machine.number(at.MOST_BYTES)
        return cell(following + at.NEWLINE_RUN) if full else 0
    run = int(machine.table(at.RUN_OF, node))
    choice = run < 0 or (node == machine.number(at.OPEN) and cell(row + at.BUILTIN) == 0)
    return 0 if choice else cell(cell(following + at.FIXED_RUNS) + run)
