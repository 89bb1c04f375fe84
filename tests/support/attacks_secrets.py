"""Things that must not arrive, each different from all others: what arrives says whose it is.

mint = Mint(1)
mint.make("iban")      # a Secret: valid, and never made before
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass

LETTERS = "bcdfghklmnprstvz"
_ODD = dict(zip(string.digits + string.ascii_uppercase, (
    1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6,
    8, 12, 14, 16, 10, 22, 25, 24, 23
), strict=True))  # fmt: skip
"""What a character of an Italian tax code counts at an odd place (DM 23 December 1976)."""


@dataclass(frozen=True)
class Secret:
    """`text` as somebody would write it; `parts` are its halves, which say too much already."""

    kind: str
    text: str

    @property
    def parts(self) -> tuple[str, ...]:
        middle = len(self.text) // 2
        return self.text[:middle], self.text[middle:]


class Mint:
    """Makes secrets from a seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)
        self._made: set[str] = set()

    def make(self, kind: str) -> Secret:
        """A new one. Kinds: `KINDS`."""
        while (text := getattr(self, f"_{kind}")()) in self._made:
            pass
        self._made.add(text)
        return Secret(kind, text)

    def word(self, letters: int = 9) -> str:
        """A word that no language has."""
        return "".join(self._draw.choices(LETTERS, k=letters))

    def _digits(self, count: int) -> str:
        return "".join(self._draw.choices(string.digits, k=count))

    def _iban(self) -> str:
        account = f"X{self._digits(22)}"
        number = "".join(str(int(c, 36)) for c in account + "IT00")
        return f"IT{98 - int(number) % 97:02d}{account}"

    def _aws(self) -> str:
        return "AKIA" + "".join(self._draw.choices(string.ascii_uppercase + "234567", k=16))

    def _card(self) -> str:
        number = "4539" + self._digits(11)
        total = sum(
            sum(divmod(int(digit) * (2 - place % 2), 10)) for place, digit in enumerate(number)
        )
        return number + str(-total % 10)

    def _email(self) -> str:
        return f"{self.word(7)}.{self.word(8)}@{self.word(7)}.org"

    def _id(self) -> str:
        """An Italian tax code."""
        name = "".join(self._draw.choices("BCDFGLMNPRSTVZ", k=6))
        code = (
            f"{name}{self._digits(2)}{self._draw.choice('ABCDEHLMPRST')}1{self._draw.randint(0, 9)}"
        )
        code += f"H{self._draw.randint(100, 999)}"
        even = "".join(code[1::2])
        total = sum(_ODD[c] for c in code[::2]) + sum(int(c, 36) - 10 * c.isalpha() for c in even)
        return code + string.ascii_uppercase[total % 26]

    def _phrase(self) -> str:
        """Ordinary words, as far as a detector can tell: about 120 letters that nobody wrote."""
        return " ".join(self.word(self._draw.randint(5, 9)) for _ in range(18))


KINDS = ("iban", "aws", "card", "email", "id")
"""What detectors find by itself."""
