"""Secrets: cloud keys, vendors' tokens, private keys, and whatever is assigned to a telling name.

The shapes are the vendors' published token formats. Nothing is ever tried against a vendor: a
revoked key counts as much as a live one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable

from conductor.detect.rules import Rule

# Tokens that begin with something nothing else begins with.
_TOKENS = (
    r"gh[pousr]_[A-Za-z0-9]{36}",  # GitHub
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"gl(?:pat|dt|rt|cbt|ptt|ft|soat|imt|agent|oas)-[A-Za-z0-9_\-]{20,}",  # GitLab
    r"xox[abeoprs]-[A-Za-z0-9\-]{10,}",  # Slack
    r"xapp-[0-9]-[A-Za-z0-9\-]{20,}",
    r"hooks\.slack\.com/services/T[A-Za-z0-9]{6,}/B[A-Za-z0-9]{6,}/[A-Za-z0-9]{16,}",
    r"(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,}",  # Stripe
    r"whsec_[A-Za-z0-9+/]{24,}",
    r"sq0(?:atp|csp|idp)-[A-Za-z0-9_\-]{22,}",  # Square
    r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}",  # Shopify
    r"sk-(?:proj|svcacct|admin|ant|or|lf)-[A-Za-z0-9_\-]{20,}",  # model vendors
    r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}",
    r"gsk_[A-Za-z0-9]{40,}",
    r"xai-[A-Za-z0-9]{60,}",
    r"r8_[A-Za-z0-9]{37}",
    r"pplx-[A-Za-z0-9]{40,}",
    r"nvapi-[A-Za-z0-9_\-]{40,}",
    r"hf_[A-Za-z0-9]{30,}",  # Hugging Face
    r"ya29\.[A-Za-z0-9_\-]{20,}",  # Google
    r"GOCSPX-[A-Za-z0-9_\-]{28}",
    r"npm_[A-Za-z0-9]{36}",  # registries
    r"pypi-AgE[A-Za-z0-9_\-]{40,}",
    r"dckr_pat_[A-Za-z0-9_\-]{20,}",
    r"rubygems_[a-f0-9]{48}",
    r"dop_v1_[a-f0-9]{64}",  # DigitalOcean
    r"dapi[a-f0-9]{32}",  # Databricks
    r"hv[sbr]\.[A-Za-z0-9_\-]{24,}",  # Vault
    r"glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8}",  # Grafana
    r"SG\.[A-Za-z0-9_\-]{16,32}\.[A-Za-z0-9_\-]{16,64}",  # SendGrid
    r"tskey-[a-z]+-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}",  # Tailscale
    r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}",  # Postman
    r"lin_api_[A-Za-z0-9]{40}",  # Linear
    r"AccountKey=[A-Za-z0-9+/]{86}==",  # Azure
    r"eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}",  # JSON Web Token, RFC 7519
)

# These need something that is no letter or digit before them: `task-` and `desk-` end in `sk-`,
# and 16 MB of base64 hold `AIza` once by chance.
_BOUNDED_TOKENS = (
    r"AIza[A-Za-z0-9_\-]{35}",  # Google
    r"sk-[A-Za-z0-9_\-]{20,200}",
    r"SK[0-9a-f]{32}",  # Twilio
    r"key-[0-9a-f]{32}",  # Mailgun
)

# What is telling stands in the middle of these: the gate, then the whole.
_INNER_TOKENS = (
    (r"[0-9]:AA[A-Za-z0-9_\-]{4}", r"[0-9]{8,10}:AA[A-Za-z0-9_\-]{33}"),  # Telegram
    (
        r"\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{4}",  # Discord
        r"[MNO][A-Za-z0-9_\-]{23,25}\.[A-Za-z0-9_\-]{6}\.[A-Za-z0-9_\-]{27,38}",
    ),
    (r"[0-9]Q~", r"[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}"),  # Entra ID
)

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
    | [\d.,:/+TZ-]+
    )\Z""",
    re.VERBOSE | re.DOTALL,
)
_CALLED = re.compile(rb"[A-Za-z_][\w.]*\Z")
_PLACEHOLDER = re.compile(
    rb"(?i)\A(?:x+|\.+|\*+|pass(?:word|wd)?|user(?:name)?|secret|token|pwd?)\Z"
)


def entropy(value: bytes) -> float:
    """Shannon entropy of the bytes, in bits a byte (Shannon 1948)."""
    size = len(value)
    return -sum(n / size * math.log2(n / size) for n in Counter(value).values())


def _random(bits: float, digits: int = 0) -> Callable[[bytes, int, int], bool]:
    """Accepts what is as mixed as a random value: entropy of at least `bits`, some digits."""

    def accept(text: bytes, start: int, end: int) -> bool:
        value = text[start:end]
        return sum(map(value.count, b"0123456789")) >= digits and entropy(value) >= bits

    return accept


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


def _gate(pattern: str) -> str:
    """The beginning of a pattern, up to four characters into its first counted part."""
    head = re.match(r"(.*?)\{(?:[4-9]|[1-9][0-9]+)[,}]", pattern)
    return head[1] + "{4}" if head else pattern


def _token(pattern: str) -> Rule:
    return Rule("secret.token", _gate(pattern), (pattern,), _random(3.0, 1), distinct=True)


def _bounded_token(token: str) -> Rule:
    start = r"(?:^|[^A-Za-z0-9])"
    return Rule("secret.token", start + _gate(token), (f"{start}({token})",), _random(3.5, 2))


def _named(head: str) -> Rule:
    gate, pattern = head + _VALUE + "{4}", rf"{head}({_VALUE}{{8,128}})"
    return Rule("secret.generic", gate, (pattern,), is_assigned_secret, look_inside=True)


def secret_rules() -> tuple[Rule, ...]:
    """The rules of this room."""
    return (
        Rule("secret.aws", _gate(_AWS_ID), (_AWS_ID,)),
        # Where spaces are gone, a heading in capitals about ASIA looks like one: but for a digit.
        Rule("secret.aws", _gate(_AWS_ID), (_AWS_ID,), _random(3.0, 1), distinct=True),
        Rule("secret.aws", _AWS_CONTEXT, (_AWS_SECRET,), is_aws_secret, look_inside=True),
        Rule("secret.private_key", _PRIVATE_KEY_HEAD, (_PRIVATE_KEY,), distinct=True),
        *(Rule("secret.private_key", key, distinct=True) for key in _OTHER_PRIVATE_KEYS),
        *map(_token, _TOKENS),
        *map(_bounded_token, _BOUNDED_TOKENS),
        *(Rule("secret.token", gate, (token,), _random(3.5, 1)) for gate, token in _INNER_TOKENS),
        Rule("secret.generic", _URL_GATE, (_URL_PASSWORD,), is_url_password, look_inside=True),
        *map(_named, (_ASSIGNED, _GIVEN)),
    )
