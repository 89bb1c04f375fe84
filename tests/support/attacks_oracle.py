"""Whether something arrived: everything that a vendor got, read as somebody would who looks for it.

Written apart from `conductor.detect`, so that both do not overlook the same. What is sought is a
secret, each half of it, and each of them as it was disguised on its way: if any of these stands in
what was received, in plain characters or decoded, the secret has arrived.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import re2

_ALIKE = str.maketrans("АЕОСРЅХТНаеосрѕх", "AEOCPSXTHaeocpsx")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){6,}")
_BETWEEN = frozenset(
    re.findall(
        r"\S+",
        """messages role user assistant system developer tool content type text function tool_calls
        id tool_call_id name arguments pay c1 model says:abroad max_tokens 4096 True False""",
    )
)
"""What stands between two things said to a model, and is nothing that anybody says."""
_LEAST = 6
_LONG = 8000
"""Letters of the shortest thing that is sought."""


def squeezed(text: str) -> str:
    """Letters and digits alone, of all scripts made one, in small letters."""
    folded = unicodedata.normalize("NFKD", text.translate(_ALIKE))
    return "".join(map(_character, folded)).lower()


def _character(c: str) -> str:
    code = ord(c)
    if c.isascii():
        return c if c.isalnum() else ""
    if 0xE0020 <= code <= 0xE007E:
        return _character(chr(code - 0xE0000))
    if 0x1F1E6 <= code <= 0x1F1FF:
        return chr(code - 0x1F1E6 + 65)
    return str(unicodedata.decimal(c)) if c.isdecimal() else c if c.isalpha() else ""


class Oracle:
    """Knows what must not arrive, each thing under the name of the attack that sends it."""

    def __init__(self) -> None:
        self._sought: dict[str, str] = {}
        self._together: list[tuple[str, tuple[str, ...]]] = []

    def seek(self, attack: str, *texts: str) -> None:
        """Look out for each of these from now on."""
        for text in texts:
            plain = squeezed(text)
            if len(plain) >= _LEAST:
                self._sought.setdefault(plain, attack)

    def seek_together(self, attack: str, *texts: str) -> None:
        """Look out for all of these in one request: none of them says anything alone."""
        self._together.append((attack, tuple(filter(None, map(squeezed, texts)))))

    def found(self, received: Iterable[bytes]) -> list[str]:
        """The attacks of which something stands in any of these."""
        requests = ["\x1e".join(dict.fromkeys(_views(data))) for data in received]
        arrived = {
            attack
            for attack, texts in self._together
            if any(all(text in request for text in texts) for request in requests)
        }
        options = re2.Options()
        options.max_mem = 1 << 30
        options.longest_match = True
        for some in _by_hundreds(sorted(self._sought)):
            pattern = re2.compile("|".join(map(re2.escape, some)), options)
            whole = "\x1e".join(requests)
            arrived.update(self._sought[match.group()] for match in pattern.finditer(whole))
        return sorted(arrived)


def _by_hundreds(words: list[str]) -> Iterator[list[str]]:
    return (words[i : i + 100] for i in range(0, len(words), 100))


def _views(data: bytes) -> Iterator[str]:
    """What the bytes of one request say, squeezed: as they are, read as JSON, and decoded."""
    text = data.decode("utf-8", "replace")
    strings = [*_strings(text, 4)]
    said = "".join(one for one in strings if one not in _BETWEEN)
    for one in (text, "".join(strings), said, *strings):
        yield squeezed(one)
        for decoded in _decoded(one, 3):
            yield squeezed(decoded)


def carriers(place: Callable[[str], Any], text: str) -> list[str]:
    """The strings of a body in which a place puts a text, encoded as it may be."""
    harmless = set(_strings(json.dumps(place("Wednesday")), 4))
    strings = _strings(json.dumps(place(text)), 4)
    return [one for one in strings if one not in harmless and len(one) < _LONG]


def _strings(text: str, depth: int) -> Iterator[str]:
    """Every string, key and number of JSON, also of JSON in its strings."""
    try:
        stack: list[Any] = [json.loads(text)]
    except ValueError:
        return
    while stack:
        value = stack.pop()
        if isinstance(value, dict):
            stack.extend(item for pair in reversed(value.items()) for item in reversed(pair))
        elif isinstance(value, list):
            stack.extend(reversed(value))
        elif value is not None:
            yield str(value)
            if depth and isinstance(value, str) and value.strip()[:1] in ("{", "[", '"'):
                yield from _strings(value, depth - 1)


def _decoded(text: str, depth: int) -> Iterator[str]:
    layers = [unquote(text)] if "%" in text else []
    for run in _HEX.findall(text):
        layers.append(binascii.unhexlify(run).decode("utf-8", "ignore"))
    for run in _BASE64.findall(text):
        plain = run.replace("-", "+").replace("_", "/")
        raw = base64.b64decode(plain[: len(plain) // 4 * 4])
        if sum(32 <= byte < 127 for byte in raw) > 0.8 * len(raw):
            layers.append(raw.decode("utf-8", "ignore"))
    for layer in layers:
        yield layer
        if depth:
            yield from _decoded(layer, depth - 1)
