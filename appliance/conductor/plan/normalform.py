r"""One spelling for what means the same: numbers, choices, literals of code, and plain words.

    1,000   $1000.00   1 000   1000 eggs   \text{1000}        1000
    1/2   \frac{1}{2}   ½   0.50                              0.5
    (B)   B.   b)   B) Paris   Option B                       b
    ["a",'b']   ['a', "b"]                                    ['a', 'b']
    'ABC'                                                     'ABC', not 'abc' and not abc
    2\sqrt{3}   2√3   2*sqrt(3)                               2sqrt(3)
    **Paris**   "paris."   PARIS                              paris

A number's unit is dropped, since one of two answers to the same question often leaves it out; not
where it tells what the number means (`7 pm`, `3 May`), and words of size multiply (`2 million`).
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from decimal import Decimal
from fractions import Fraction
from typing import Any

NUMBER = r"[-+−]?(?:(?:\d{1,3}(?:,\d{3}){1,20}(?!\d)|\d+)(?:\.\d+)?|\.\d+)"
"""A number in running text. Thousands are set off by commas."""

_MAX_LITERAL = 1000
_MAX_CHOICE = 200
"""Characters of a choice that are looked at."""
_MAX_FOLDED = 4096
"""Longer texts are not normalised: that can take time quadratic in their marks."""
_MAX_NUMBER_CHARS = 100
"""Longer ones, unit included, are compared as they stand."""
_MARKS = " \t\r\n.,:;!?*_`'\"“”‘’«»"
_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
"""Of a decimal without its nought; not a mark, then."""
_FLAGS = frozenset({"true", "false", "none"})


def normal(text: str, *, code: bool = False) -> str:
    """The one spelling of a conclusion; `code`: written as code. Empty for marks alone."""
    if (literal := _literal(text, code=code)) is not None:
        return literal
    text = _latex(text)
    if (literal := _literal(text, code=code)) is not None:
        return literal
    if choice := _CHOICE.match(text[:_MAX_CHOICE]):
        return next(letter for letter in choice.groups() if letter).lower()
    value = _value(_mathematics(text))
    exact = code and value not in _FLAGS and not _WHOLE.fullmatch(value)
    return " ".join(text.split()) if exact else value


def plain(text: str) -> str:
    """Prose, as it is compared: case, spacing and marks at its ends aside, and in a text that is
    not too long the width and composition of letters."""
    if len(text) <= _MAX_FOLDED:
        text = unicodedata.normalize("NFKC", text)
    folded = " ".join(text.casefold().split())
    return _POINT.sub("0.", folded).strip(_MARKS)


def is_choice(text: str) -> bool:
    """Whether it is a letter marked as a choice, with or without what that stands for."""
    return bool(_CHOICE.match(text[:_MAX_CHOICE]))


def is_literal(text: str) -> bool:
    """Whether it is a literal of Python, numbers and names of truth included."""
    bare = text.strip()
    return (
        bare in ("True", "False", "None")
        or bool(_WHOLE.fullmatch(bare))
        or (bare[:1] in ("'", '"', "[", "(", "{", "b") and _read(bare) is not None)
    )


# -- choices ------------------------------------------------------------------------------------

_CHOICE = re.compile(
    r"[\s*_`$]*(?:(?i:option|choice)\s+)?(?:"
    r"[*_`$(\[]*([A-H])(?:[*_`$)\].:]+(?:\s+(?![A-Z]\.)\S.*)?|\s*)"
    r"|\(([a-h])\)(?:\s.*)?|([a-h])\)(?:\s.*)?"
    r")\s*\Z",
    re.S,
)
"""A letter alone, or with what marks it as a choice; then what it stands for may follow. Initials
(`C. S. Lewis`) are none."""


# -- literals of code ---------------------------------------------------------------------------


def _literal(text: str, *, code: bool) -> str | None:
    """The spelling of a collection or a quoted text; None for anything else. Quotes that change
    nothing are left out: `'abc'` is abc, but `'ABC'`, `'5'` and `'a.'` keep them."""
    bare = text.strip(" \t\n`*")
    if bare[-2:-1] in tuple("'\"])}") and bare.endswith("."):
        bare = bare[:-1]
    if not code and bare.startswith('"'):
        return None  # a quotation
    value = _read(bare) if bare[:1] in tuple("'\"[({b") else None
    if isinstance(value, str):
        same = bool(value) and _value(_mathematics(value)) == value
        return value if same and value not in _FLAGS and not _has_digit(value) else repr(value)
    if isinstance(value, (list, tuple, dict, set, bytes)):
        return _spelled(value)
    return None


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)


def _read(text: str) -> Any:
    """The value of a literal; None for none."""
    if len(text) > _MAX_LITERAL:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about odd escapes, and would quote the text
            return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None


def _spelled(value: Any) -> str:
    """`repr`, with the items of a set in order."""
    if isinstance(value, set):
        return "{" + ", ".join(sorted(map(_spelled, value))) + "}" if value else "set()"
    if isinstance(value, dict):
        items = (f"{_spelled(k)}: {_spelled(v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_spelled, value)) + "]"
    if isinstance(value, tuple):
        return "(" + ", ".join(map(_spelled, value)) + ("," * (len(value) == 1)) + ")"
    return repr(value)


# -- mathematics --------------------------------------------------------------------------------

_WRAPPED = re.compile(
    r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|it|sf)|mbox|operatorname|boxed|fbox|hbox)\s?\{([^{}]*)\}"
)
_FRACTION = re.compile(r"\\[dtc]?frac\s?(?:\{([^{}]*)\}\s?\{([^{}]*)\}|(\d)(\d))")
_ROOT = re.compile(r"(?:\\sqrt|√|\bsqrt)\s?(?:\{([^{}]*)\}|\(([^()]*)\)|(\d+|[a-z]\b))")
_POWER = re.compile(r"\^\s?\{([^{}]*)\}")
_SPACING = re.compile(r"\\(?:left|right|displaystyle|[,!;: ]|q?quad\b)|~")
_NAMES = {
    r"\cdot": "*", r"\times": "*", r"\div": "/", r"\pm": "±", r"\pi": "π", r"\infty": "∞",
    r"\leq": "≤", r"\le": "≤", r"\geq": "≥", r"\ge": "≥", r"\neq": "≠", r"\ne": "≠",
    r"\cup": "∪", r"\cap": "∩", r"\in": "∈", r"\approx": "≈", r"\%": "%", r"\$": "$",
    r"\{": "{", r"\}": "}", r"\(": "", r"\)": "", r"\[": "", r"\]": "", r"\degree": "°",
}  # fmt: skip
_NAME = re.compile(r"\\(?:[A-Za-z]+|[%${}()\[\]])")
_DEGREES = re.compile(r"\^?\s?(?:\{?\\circ\}?|°)")
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_RAISED_RUN = re.compile("[⁻]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_OPERATOR = re.compile(r"\s*([-+*/^=<>≤≥≠±,;|(){}\[\]])\s*")
_TIMES = re.compile(r"(?<=\d)(?:\*|\s)(?=sqrt|π|\(|[a-z]\b)")
_ASSIGNED = re.compile(r"\A(?:[a-z](?:_\w|'{1,2})?|[a-z]\([a-z0-9]{1,8}\))=(?=[^=]+\Z)")
_ABOUT = re.compile(r"\A(?:[=≈~]|about|approximately|approx\.?|roughly|exactly|only|ca\.)\s?")
_ARTICLE = re.compile(r"\A(?:an?|the) (?=[^\W\d_]{2})")
_PASSES = 4
"""Depth of nested LaTeX that is understood."""


def _latex(text: str) -> str:
    """Without LaTeX, as far as it is understood; text without a backslash stays as it is."""
    text = _RAISED_RUN.sub(lambda run: "^" + run.group().translate(_RAISED), text)
    text = _VULGAR.sub(lambda char: " " + unicodedata.normalize("NFKC", char.group()), text)
    text = text.replace("⁄", "/").replace("{,}", ",")
    if "\\" in text:
        text = _SPACING.sub(" ", text.replace("\\,", ""))
        text = _DEGREES.sub("", text)
        for _ in range(_PASSES):
            text = _WRAPPED.sub(r" \1 ", text)
            text = _FRACTION.sub(_as_quotient, text)
            text = _ROOT.sub(_as_root, text)
        text = _NAME.sub(lambda name: _NAMES.get(name.group(), name.group()), text)
    return _POWER.sub(_as_power, text.replace("°", ""))


def _as_quotient(found: re.Match[str]) -> str:
    above, below = (part.strip() for part in found.groups() if part is not None)
    sign = "-" if above.startswith("-") else ""
    above = above.removeprefix(sign)
    product = not any(sign in above for sign in "+-/, ")
    return f" {sign}{above if product else _atom(above)}/{_atom(below)} "


def _as_root(found: re.Match[str]) -> str:
    return f"sqrt({next(part for part in found.groups() if part is not None).strip()})"


def _as_power(found: re.Match[str]) -> str:
    return "^" + _atom(found.group(1).strip())


def _atom(text: str) -> str:
    bare = text.removeprefix("-")
    return text if bare.isdigit() or len(bare) == 1 else f"({text})"


def _mathematics(text: str) -> str:
    """Plain text, with formulas in one spelling."""
    folded = plain(text.replace("$", " ").replace("−", "-"))
    folded = _ROOT.sub(_as_root, re.sub("[€£¥]", "", folded))
    folded = _TIMES.sub("", _OPERATOR.sub(r"\1", folded)).strip(_MARKS)
    folded = _ASSIGNED.sub("", _ABOUT.sub("", folded))
    return _unwrapped(_ARTICLE.sub("", folded))


def _unwrapped(text: str) -> str:
    """Without brackets around one item. Those around several tell tuples from intervals."""
    inner = text[1:-1]
    if text[:1] in tuple("([{") and text[-1:] in tuple(")]}"):
        return text if re.search(r"[,;()\[\]{}]", inner) else inner.strip(_MARKS)
    return text


# -- numbers ------------------------------------------------------------------------------------

_GROUPED = r"\d{1,3}(?:[, ]\d{3})+"
_PLAIN_NUMBER = rf"(?:{_GROUPED}|\d+)(?:\.\d*)?"
_WHOLE = re.compile(rf"[-+]?{_PLAIN_NUMBER}")
_MIXED = re.compile(rf"([-+]?)(?:(\d+) (?=\d+/))?({_PLAIN_NUMBER})(?:/(\d+))?(.*)", re.S)
_SIZES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_TELLING = re.compile(
    r"(?:[ap]\.?m\b|bce?|ce|ad|uhr|dozen|and|or|to|by|of|x|mod|jan|feb|mar(?:ch)?\b|märz|apr|may\b|mai\b"
    r"|jun|jul|aug|sept?\b|september|o[ck]t|nov|de[cz]\b|de[cz]ember)"
)
"""Words after a number that say which number it is, not of what."""
_UNIT = re.compile(
    r"(?: ?%| ?(?:km|kg|cm|mm|mph|ml)| [^\W\d_]{2,20}| [mghsl])(?: [^\W\d_]{1,20}){0,2}"
)


def _value(text: str) -> str:
    """The value of a number, however it is written; any other text as it stands."""
    found = _MIXED.fullmatch(text) if len(text) <= _MAX_NUMBER_CHARS else None
    if not found:
        return text
    sign, whole, above, below, rest = found.groups()
    size = _size(rest)
    if size is None or (below and not int(below)):
        return text
    value = Fraction(Decimal(above.replace(",", "").replace(" ", ""))) / int(below or 1)
    return _written((value + int(whole or 0)) * (-size if sign == "-" else size))


def _size(rest: str) -> int | None:
    """What the words after a number multiply it by; None when they tell which number it is."""
    word, _, unit = rest.strip(_MARKS).partition(" ")
    if word in _SIZES:
        return _SIZES[word] if not unit or _UNIT.fullmatch(" " + unit) else None
    if not word:
        return 1
    telling = _TELLING.match(word) or not _UNIT.fullmatch(rest.rstrip(_MARKS))
    return None if telling else 1


def _written(value: Fraction) -> str:
    """Decimal where it ends, else as a quotient. Exact at any length."""
    places = 0
    while (10**places) % value.denominator and places < _MAX_NUMBER_CHARS:
        places += 1
    if (10**places) % value.denominator:
        return f"{value.numerator}/{value.denominator}"
    digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
    sign = "-" if value < 0 else ""
    return f"{sign}{digits[:-places]}.{digits[-places:]}" if places else sign + digits
