"""Secrets: cloud keys, vendors' tokens, private keys, and whatever is assigned to a telling name.

The shapes are the vendors' published token formats. Nothing is ever tried against a vendor: a
revoked key counts as much as a live one.
"""

from __future__ import annotations

import re
import string

from conductor.detect.entropy import entropy
from conductor.detect.rules import Accept, Rule
from conductor.detect.tokens import BOUNDED, INNER, TOKENS

_AWS_ID = r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}"
_AWS_CONTEXT = r"(?i)(?:aws|secret)[A-Za-z_\-. ]{0,30}key[A-Za-z_\-. ]{0,10}"
_AWS_SECRET = _AWS_CONTEXT + r"[\"'\\` ]{0,4}(?:=>|:=|=|:| is )[\"'\\` ]{0,4}([A-Za-z0-9/+]{40})"

_PRIVATE_KEY_HEAD = r"-----BEGIN ?(?:[A-Z0-9]+ ?){0,3}PRIVATE ?KEY"
_PRIVATE_KEY = _PRIVATE_KEY_HEAD + r" ?(?:BLOCK)?-----(?s:.{0,200}?)[A-Za-z0-9+/]{20}"
_OTHER_PRIVATE_KEYS = (
    r"PuTTY-User-Key-File-[0-9]",
    r"AGE-SECRET-KEY-1[A-Z0-9]{40,}",
    r"b3BlbnNzaC1rZXktdjE",  # "openssh-key-v1" in base64: a key whose first line was cut off
    r"openssh-key-v1",
)

_NAMES = (
    r"(?i:pass[ _\-]?(?:word|wd|phrase|code|wort)|passwort|contrase\xc3\xb1a|pwd|secret|token"
    r"|(?:api|access|auth|account|private|encryption|signing|shared|master)[ _\-]?key|credential)"
)
# `tokenizer` and `secretary` are other words; `tokens`, `token_value` and `tokenValue` are not.
_NAMED = _NAMES + r"(?:s|[_.\-][A-Za-z0-9_.\-]{1,20}|[A-Z][A-Za-z0-9]{1,20})?\]?"
_QUOTES = r"[\"'\\`]{0,4}"
_LINK = (
    r"(?:[ \t]{0,4}(?:=>|:=|==?|:)[ \t]{0,4}|[ \t]{1,4}(?:is|was|ist|lautet|est|es)[ \t:]{1,4})"
    + _QUOTES
    + r"(?i:(?:bearer|basic|token)[ \t]{1,4})?"
)
_VALUE = r"[^\s\"'`,;<>(){}\[\]\x1e\\]"
_ASSIGNED = _NAMED + _QUOTES + _LINK
_GIVEN = rf"(?i)(?:--[a-z\-]{{0,20}}{_NAMES}[a-z\-]{{0,20}}|\bbearer)[ \t]{{1,4}}{_QUOTES}"

_URL_PART = r"[^\s/:@\"'<>\x1e]"
_URL_GATE = rf"://{_URL_PART}*:[^\s/@\"'<>\x1e]+@"
_URL_PASSWORD = rf"://{_URL_PART}{{0,64}}:([^\s/@\"'<>\x1e]{{3,128}})@[^\s]"

# Values that are no secrets: names of variables, attributes, paths, addresses, templates.
_HARMLESS = re.compile(
    rb"""(?:
      \$[A-Z_][A-Z0-9_]* | \$[a-z_]+\d? | .*\$\{.* | .*\*\*\*.*
    | https?:.* | (?:file|env|credential|vault|arn):.*
    | (?:~|\.{1,2})?(?:/[\w.\-]{1,24})+/?
    | [A-Za-z_]+\d{0,2}(?:(?:\.|::|->)[A-Za-z_]+\d{0,2})+[.:]?
    | [A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+
    | [a-z0-9]+(?:[_-][a-z]+)+[.:]?
    | (?:[A-Z][a-z]+\d{0,5})+(?:Key|Token|Secret|Password|Credentials?)
    | [\d.,:/+TZ-]+
    )\Z""",
    re.VERBOSE | re.DOTALL,
)
_CAPITALS = string.ascii_uppercase.encode()
_NO_LETTERS = bytes(byte for byte in range(256) if not chr(byte).isalpha() or byte > 127)
_CALLED = re.compile(rb"[A-Za-z_][\w.]*\Z")
_PLACEHOLDER = re.compile(
    rb"(?i)\A(?:x+|\.+|\*+|pass(?:word|wd)?|user(?:name)?|secret|token|pwd?)\Z"
)


def _random(bits: float, digits: int = 0) -> Accept:
    """Accepts what is as mixed as a random value: entropy of at least `bits`, and some digits.

    One in fifty short tokens has none by chance: then its capitals are as many as no word has.
    """

    def accept(text: bytes, start: int, end: int) -> bool:
        value = text[start:end]
        if entropy(value) < bits:
            return False
        return sum(map(value.count, b"0123456789")) >= digits or _is_mixed(value)

    return accept


def _is_mixed(value: bytes) -> bool:
    """Whether about half of the letters are capitals, as in no word and no name of a variable."""
    letters = value.translate(None, _NO_LETTERS)
    capitals = len(letters) - len(letters.translate(None, _CAPITALS))
    return len(letters) >= 12 and 0.25 <= capitals / len(letters) <= 0.75


def is_assigned_secret(text: bytes, start: int, end: int) -> bool:
    """Whether the value given to a name such as `password` looks chosen or drawn, not written."""
    value = text[start:end].rstrip(b".:!?")
    letters = bool(re.search(rb"[A-Za-z\x80-\xff]", value))
    digits = bool(re.search(rb"[0-9]", value))
    if len(value) < 7 or not (letters and digits) or _HARMLESS.match(value):
        return False
    if text[end : end + 1] == b"(" and _CALLED.match(value):
        return False
    return entropy(value) >= 2.75


def is_url_password(text: bytes, start: int, end: int) -> bool:
    """Whether the part between `:` and `@` of a URL is a password rather than its placeholder."""
    value = text[start:end]
    return not (_PLACEHOLDER.match(value) or value.startswith((b"$", b"{", b"%(", b"[")))


def is_aws_secret(text: bytes, start: int, end: int) -> bool:
    """Whether forty characters after an AWS-like name are a key rather than a digest."""
    value = text[start:end]
    if re.match(rb"[A-Za-z0-9/+=]", text[end : end + 1]) or re.fullmatch(rb"[0-9a-fA-F]+", value):
        return False
    return entropy(value) >= 3.8


_MORE = re.compile(rb"[A-Za-z0-9_\-+/=~]*(?:\.[A-Za-z0-9_\-+/=~]+)*")
_VALUE_END = re.compile(rb"[^\s\"'`,;<>\x1e]*")
_KEY_END = re.compile(rb"(?s).{0,16384}?-----END[^\n-]{0,60}-----")
_KEY_LINES = re.compile(rb"[A-Za-z0-9+/=\s\\:,.\-]{0,16384}")


def whole_token(text: bytes, start: int, end: int) -> tuple[int, int]:
    """A token as far as it goes: a shape is found by its beginning, of a web token two parts."""
    more = _MORE.match(text, end)
    return start, more.end() if more else end


def whole_value(text: bytes, start: int, end: int) -> tuple[int, int]:
    """A value up to the next space, quote or comma: a shape stops at 128 characters."""
    more = _VALUE_END.match(text, end)
    return start, more.end() if more else end


def whole_key(text: bytes, start: int, end: int) -> tuple[int, int]:
    """A private key down to its last line, or as far as base64 goes where that is missing."""
    more = _KEY_END.match(text, end) or _KEY_LINES.match(text, end)
    return start, more.end() if more else end


def _gate(pattern: str) -> str:
    """The beginning of a pattern, up to four characters into its first counted part."""
    head = re.match(r"(.*?)\{(?:[4-9]|[1-9][0-9]+)[,}]", pattern)
    return head[1] + "{4}" if head else pattern


def _token(pattern: str) -> Rule:
    return Rule(
        "secret.token",
        _gate(pattern),
        (pattern,),
        _random(3.0, 1),
        extent=whole_token,
        distinct=True,
    )


def _bounded_token(token: str) -> Rule:
    start = r"(?:^|[^A-Za-z0-9])"
    pattern = f"{start}({token})"
    return Rule(
        "secret.token", start + _gate(token), (pattern,), _random(3.5, 2), extent=whole_token
    )


def _named(head: str) -> Rule:
    gate, pattern = head + _VALUE + "{4}", rf"{head}({_VALUE}{{8,128}})"
    return Rule(
        "secret.generic",
        gate,
        (pattern,),
        is_assigned_secret,
        extent=whole_value,
        look_inside=True,
    )


def secret_rules() -> tuple[Rule, ...]:
    """The rules of this room."""
    return (
        Rule("secret.aws", _gate(_AWS_ID), (_AWS_ID,)),
        # Where spaces are gone, a heading in capitals about ASIA looks like one: but for a digit.
        Rule("secret.aws", _gate(_AWS_ID), (_AWS_ID,), _random(3.0, 1), distinct=True),
        Rule("secret.aws", _AWS_CONTEXT, (_AWS_SECRET,), is_aws_secret, look_inside=True),
        Rule(
            "secret.private_key",
            _PRIVATE_KEY_HEAD,
            (_PRIVATE_KEY,),
            extent=whole_key,
            distinct=True,
        ),
        *(
            Rule("secret.private_key", key, extent=whole_key, distinct=True)
            for key in _OTHER_PRIVATE_KEYS
        ),
        *map(_token, TOKENS),
        *map(_bounded_token, BOUNDED),
        *(
            Rule("secret.token", gate, (token,), _random(3.5, 1), extent=whole_token)
            for gate, token in INNER
        ),
        Rule("secret.generic", _URL_GATE, (_URL_PASSWORD,), is_url_password, look_inside=True),
        *map(_named, (_ASSIGNED, _GIVEN)),
    )
