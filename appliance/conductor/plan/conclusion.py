r"""What an answer concludes with, if that is a few words which can be compared exactly.

Looked for in this order, the last of its kind each time:

    {"answer": ...}, ['a', 1]              JSON or a literal of code that is the whole answer
    <answer>...</answer>, [ANSWER]...      tags that prompts ask for
    \boxed{...}                            mathematics, with nested braces
    assert f(...) == ...                   what code gives, outside of code that defines anything
    "the answer is ...", "Answer: ...", "#### ..."
    yes or no                              an answer of one paragraph that begins with it
    a code block of one line               the only one, or one that holds a literal
    the whole of a short answer            after "is" and the like, or the one number in it
    the last line                          "x = 3", **x**, $x$, a bare number, (B), yes
    the last number                        of a last sentence that draws a conclusion

Prose, poems and programs conclude with nothing: None. Patterns are bounded, and of a long answer
only the two ends are read, so that time is bounded too. Left out: what the words mean
(`normalform.py`), and who agrees with whom (`agreement.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from conductor.plan.normalform import NUMBER, is_choice, is_literal

READ_CHARS = 4096
"""How much of an answer is read: its two ends."""
SHORT_CHARS = 80
"""Up to that length an answer, or a conclusion in it, is compared as it stands."""
_CUT = "\n[...]\n"


@dataclass(frozen=True, slots=True)
class Conclusion:
    """The words, as written."""

    text: str
    code: bool = False
    """Written as code, where quotes and upper case mean something."""


def ends(text: str, longest: int) -> str:
    """`text`, or of a longer one as much of its two ends, `longest` characters at most."""
    if len(text) <= longest:
        return text
    half = (longest - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


def conclusion(answer: str) -> Conclusion | None:
    """What the answer concludes with; None when it has no such words, or is empty."""
    text = ends(answer, READ_CHARS).strip()
    found = (find(text) for find in _IN_ORDER)
    return next((c for c in found if c is not None and c.text.strip()), None)


# -- marked as the answer -----------------------------------------------------------------------

_FENCE = re.compile(r"^[ \t]{0,3}```[^\n`]*\n(.*?)(?:^[ \t]{0,3}```[ \t]*$|\Z)", re.M | re.S)
_TAGS = (("<answer>", "</answer>", False), ("[answer]", "[/answer]", True))
"""Opening, closing, and whether code stands between them."""
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{|[{}]")
_DEFINES = re.compile(r"^\s*(?:async )?(?:def|class|import|from) ", re.M)
_JSON_NAMES = ("answer", "final_answer", "result", "output")
_WORD = r"(?:answer|antwort|respuesta|réponse|risposta)"
_NOUN = r"(?:option|choice|result|output|value|ergebnis|resultado)"
_STATED = re.compile(
    rf"(?:\b{_WORD}|\b(?:final|correct|right)[ ]{_NOUN}"
    rf"|^[ \t*_#>-]{{0,6}}{_NOUN}(?=[*_ ]{{0,4}}[:=]))"
    r"[*_\"'` ]{0,5}(?:(?:is|ist|lautet|es|est|would be|should be)\b[ ]?:?|[:=]|->|→)|^####",
    re.I | re.M,
)
_REASON = re.compile(r"[,;]?\s\(?(?:because|since|which|so|where|as|weil|denn|da)\b", re.I)
_MAX_STATED, _MAX_LINE = 16, 400
"""How many such marks are looked at, from the end, and how much of a line after each or at the end
of the answer."""
_OPENS = re.compile(r"(?:let|first|to|we|i|here|sure|this|that|as follows)\b", re.I)
_SENTENCE_END = re.compile(r"(?<!\b[A-Z])(?<!\b(?:St|Dr|Mr|Ms))(?<!\bMrs)[.!?](?=[*_\"')]*\s)")
_MARKED_UP = re.compile(
    r"\s*(?:\*\*([^*\n]+)\*\*|`([^`\n]+)`|\$([^$\n]+)\$|\\\((.+?)\\\))(?=\s*(?:[.,;:!?(]|$))"
)


def _json(text: str) -> Conclusion | None:
    fence = _FENCE.fullmatch(text)
    inner = (fence.group(1) if fence else text).strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        return None
    try:
        fields = orjson.loads(inner.encode("utf-8", "replace"))
    except orjson.JSONDecodeError:
        return None
    value = next((fields[name] for name in _JSON_NAMES if name in fields), None)
    if value is None or (isinstance(value, str) and len(value) > READ_CHARS):
        return None
    if isinstance(value, str):
        return Conclusion(value) if len(value) <= SHORT_CHARS else conclusion(value)
    try:
        return Conclusion(repr(value), code=True)
    except RecursionError:
        return None  # nested too deep for anybody to have meant it


def _tagged(text: str) -> Conclusion | None:
    lower = text.lower() if len(text.lower()) == len(text) else text
    for opening, closing, code in _TAGS:
        start = lower.rfind(opening, 0, max(0, lower.rfind(closing)))
        if start >= 0:
            inner = text[start + len(opening) : lower.index(closing, start)].strip()
            return _asserted(inner) or _short(inner, code=code)
    return None


def _boxed(text: str) -> Conclusion | None:
    r"""The last box that closes, as its outermost one."""
    opened: list[int | None] = []
    last: Conclusion | None = None
    for mark in _BOX.finditer(text):
        if mark.start() and text[mark.start() - 1] == "\\" and mark.group() in "{}":
            continue  # an escaped brace is a character
        if mark.group() != "}":
            opened.append(mark.end() if len(mark.group()) > 1 else None)
        elif opened and (start := opened.pop()) is not None:
            last = Conclusion(text[start : mark.start()])
    return last


def _asserted(text: str) -> Conclusion | None:
    parts = text.split("```")
    for part in reversed(parts):
        lines = [line.strip(" `\t") for line in part.splitlines()]
        asserts = [line for line in lines if line.startswith("assert ") and "==" in line]
        if asserts and not _DEFINES.search(part):
            return next(_right_sides(asserts[-1]), None)
    return None


def _right_sides(line: str) -> Iterator[Conclusion]:
    """What stands right of an `==` of the line and is a literal, the longest first."""
    for sign in list(re.finditer("==", line))[:8]:
        value = line[sign.end() :].strip()
        if is_literal(value):
            yield Conclusion(value, code=True)


def _stated(text: str) -> Conclusion | None:
    closing = _closing_line(text)
    for mark in reversed(list(_STATED.finditer(text))[-_MAX_STATED:]):
        line = text[mark.end() : mark.end() + _MAX_LINE].lstrip(" \t\n*_:#>").partition("\n")[0]
        said = _said(line).strip(" \t*_")
        if _OPENS.match(said) or not (_is_value(said) or closing.endswith(line.strip())):
            continue  # a heading, and the reasoning begins
        if found := _short(said):
            return found
    return None


def _is_value(said: str) -> bool:
    return len(said.split()) <= _MAX_SAID_WORDS or is_literal(said) or is_choice(said)


def _said(line: str) -> str:
    """The words that are stated, without what is said about them."""
    if marked_up := _MARKED_UP.match(line):
        return next(group for group in marked_up.groups() if group)
    line = _SENTENCE_END.split(line, maxsplit=1)[0]
    return _REASON.split(line, maxsplit=1)[0]


# -- by its form --------------------------------------------------------------------------------

_YES_NO = re.compile(
    r"\W{0,4}(yes|no(?!\.\s*\d)|true|false|ja|nein|oui|non|sí)\b(?=\W{0,4}(?:[,.;:!–—-]|\Z))", re.I
)
_PARAGRAPH_CHARS = 240
_IS = re.compile(r"\b(?:is|are|was|were|equals|ist|sind|war|est|es)\s+(?:called\s+)?", re.I)
_MAX_SAID_WORDS = 4
_A_NUMBER = re.compile(rf"(?<![\w.,])(?<!\w[-/]){NUMBER}(?![\w]|[.,]\d)")
_ENDS_SO = re.compile(
    rf"(?:\b(?:is|are|was|were|be|equals|gives?|gets?|yields|makes?|find)|[=:≈])\s*[*$\\(]*"
    rf"({NUMBER})[^\w\n]*\Z",
    re.I,
)
_BARE = re.compile(rf"[\s*_$€£~≈]*({NUMBER})\s*[^\W\d_]{{0,12}}[\s.*_$%]*\Z")
_BARE_WORD = re.compile(r"[\s*_$]*(?:\(?[A-H]\)?|(?i:yes|no|true|false))[\s.!*_$]*\Z")
_WHOLLY_MARKED_UP = re.compile(
    r"\*\*([^*\n]+)\*\*\W*\Z|\$+([^$\n]+)\$+\W*\Z|\\[\[(](.+)\\[\])]\W*\Z"
)
_LEFT_SIDE = re.compile(r"(?:.*[\s$(]|\A)[^\s=]{1,20}\s*=\s*(?=[^=]+\Z)")
_CONCLUDES = re.compile(
    r"\W*(?:so|thus|therefore|hence|altogether|in total|consequently|daher|damit|somit|insgesamt|"
    r"folglich)\b",
    re.I,
)
_RECKONS = re.compile(r"\d\s?[+*×÷·]\s?[$€£]?\d|\d\s[-/]\s[$€£]?\d|=\s?[$€£]?\d")
"""Signs of reckoning; dates and ranges have others."""
_COURTESY = re.compile(
    r"\W*(?:let me know|i hope|hope (?:this|that)|if you|feel free|please let)", re.I
)
_ITEM = re.compile(r"(?:[-*+>•]|#{1,6}|\d{1,2}[.)])\s+")


def _literal(text: str) -> Conclusion | None:
    return Conclusion(text) if is_literal(text) else None


def _yes_no(text: str) -> Conclusion | None:
    if "\n\n" in text or len(text) > _PARAGRAPH_CHARS:
        return None  # a letter or a poem that begins with "Yes!"
    found = _YES_NO.match(text)
    return Conclusion(found.group(1)) if found else None


def _fenced(text: str) -> Conclusion | None:
    blocks = [block.strip("\n") for block in _FENCE.findall(text)]
    if not blocks or "\n" in blocks[-1]:
        return None
    last = blocks[-1].strip()
    if len(blocks) > 1 and not is_literal(last):
        return None
    return _short(last, code=True)


def _whole(text: str) -> Conclusion | None:
    if len(text) > SHORT_CHARS or "\n\n" in text or "```" in text:
        return None
    if "\n" in text and (found := _last_line(text) or _last_number(text)):
        return found
    if len(text.split()) > 2 and not _SENTENCE_END.search(text):
        after = _IS.split(text)[-1]
        if after != text and len(after.split()) <= _MAX_SAID_WORDS:
            return Conclusion(after)
        numbers = _A_NUMBER.findall(text)
        if len(numbers) == 1 and text.endswith("."):
            return Conclusion(numbers[0])
    return Conclusion(text)


def _last_line(text: str) -> Conclusion | None:
    line = _closing_line(text)
    if _BARE.match(line) or _BARE_WORD.match(line):
        return _short(line)
    if found := _WHOLLY_MARKED_UP.match(line):
        said = next(group for group in found.groups() if group)
        if not said.endswith("!") and (_is_value(said) or not line.startswith("*")):
            return _short(said)
    if len(line) <= SHORT_CHARS and (left := _LEFT_SIDE.match(line)):
        right = line[left.end() :].rstrip(" .$")
        if len(right.split()) <= _MAX_SAID_WORDS:
            return _short(right)
    return None


def _last_number(text: str) -> Conclusion | None:
    line = _closing_line(text)[-_MAX_LINE:]
    sentence = _SENTENCE_END.split(line)[-1].strip() or line
    if found := _ENDS_SO.search(sentence):
        return Conclusion(found.group(1))
    if not (_CONCLUDES.match(sentence) or _RECKONS.search(text)):
        return None
    bold = re.findall(r"\*\*([^*\n]{1,60})\*\*", sentence)
    numbers = _A_NUMBER.findall(bold[-1] if bold else sentence)
    return Conclusion(numbers[-1]) if numbers else None


def _closing_line(text: str) -> str:
    """The last line that says something, without the mark of a list; programs say nothing."""
    said = _FENCE.sub("\n", text).splitlines()
    lines = [line.strip() for line in said if line.strip(" \t*_#`-")]
    while len(lines) > 1 and _COURTESY.match(lines[-1]):
        lines.pop()
    return _ITEM.sub("", lines[-1], count=1) if lines else ""


def _short(text: str, *, code: bool = False) -> Conclusion | None:
    text = text.strip()
    fits = len(text) <= SHORT_CHARS or is_literal(text.rstrip(".`* "))
    return Conclusion(text, code) if text and fits else None


_IN_ORDER: tuple[Callable[[str], Conclusion | None], ...] = (
    _json,
    _literal,
    _tagged,
    _boxed,
    _asserted,
    _stated,
    _yes_no,
    _fenced,
    _whole,
    _last_line,
    _last_number,
)
