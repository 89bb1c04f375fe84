"""Values of a YAML file as their readers ask for them, each with its position.

Asking is the schema: a `Section` reports what is missing, of the wrong kind or out of bounds when
asked for it, and on `done()` every key that nobody asked for. All of it lands in one `Faults`.

A faulty value reads as its default, or else as "", 0, False, the first choice or nothing, so that
the walk goes on and finds the rest; `Faults.raise_any()` then makes sure that none of it is used.
A reader that looks a name up skips "": it has been reported.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Collection
from typing import Any, Final, Literal, TypeVar

import yaml

from conductor.strictyaml import scalars
from conductor.strictyaml.faults import Faults, Position, hint

_D = TypeVar("_D")
_T = TypeVar("_T")


class Required(enum.Enum):
    TOKEN = enum.auto()


REQUIRED: Final = Required.TOKEN
"""The default of a key that has no default."""


class Value:
    """One value. `name` says in messages what it is; it never comes from the file."""

    def __init__(self, node: Any, name: str, file: str, faults: Faults) -> None:
        self._node = node
        self._file = file
        self._faults = faults
        self.name = name
        self.position = Position.of(file, node.start_mark)

    @property
    def kind(self) -> Literal["scalar", "list", "mapping"]:
        if isinstance(self._node, yaml.MappingNode):
            return "mapping"
        return "list" if isinstance(self._node, yaml.SequenceNode) else "scalar"

    def fault(self, code: str, message: str) -> None:
        """Note a fault of this value that only its reader can know."""
        self._faults.add(self.position, code, message)

    def text(self, pattern: re.Pattern[str] | None = None, want: str = "another form") -> str:
        """A non-empty line of text, which all of `pattern` must match; `want` names it in words."""
        text = self._scalar("text")
        if text is None:
            return ""
        if problem := scalars.text_problem(self._node):
            return self._bad("", *problem)
        if pattern is not None and not pattern.fullmatch(text):
            return self._bad("", "bad-value", f"must be {want}")
        return text

    def choice(self, names: Collection[str], code: str = "bad-value") -> str:
        """One of `names`, else "" and a fault that offers the nearest."""
        text = self.text()
        if text and text not in names:
            return self._bad("", code, f"is not one of the names possible; {hint(text, names)}")
        return text

    def integer(self, low: int = 0, high: int = 2**31 - 1) -> int:
        """A whole number in decimal digits, `low` to `high`."""
        return self._digits(scalars.INTEGER, int, low, high, "a whole number")

    def number(self, low: float = 0.0, high: float = 1e9) -> float:
        """A decimal number without exponent, `low` to `high`."""
        return self._digits(scalars.NUMBER, float, low, high, "a number")

    def flag(self) -> bool:
        """`true` or `false`, nothing else that YAML also takes for them."""
        text = self._scalar("true or false")
        if text is not None and (scalars.quoted(self._node) or text not in ("true", "false")):
            return self._bad(False, "wrong-kind", "must be true or false")
        return text == "true"

    def text_or_flag(self) -> str | bool:
        """A plain `true` or `false` as a flag, anything else as text."""
        if (
            self.kind == "scalar"
            and not scalars.quoted(self._node)
            and self._node.value in ("true", "false")
        ):
            return self.flag()
        return self.text()

    def mapping(self) -> Section:
        """The keys below; of another kind: a section that asks for nothing more."""
        if self.kind != "mapping":
            self._bad(None, "wrong-kind", "must be a mapping of keys to values")
            return Section({}, self.name, self.position, self._faults, quiet=True)
        return Section.of(self._node, self._file, self._faults, self.name)

    def items(self, *, some: bool = False) -> list[Value]:
        """The entries of a list; at least one when `some` are needed."""
        if self.kind != "list":
            return self._bad([], "wrong-kind", "must be a list")
        if some and not self._node.value:
            return self._bad([], "bad-value", "must not be empty")
        name = f"an entry of {self.name}"
        return [Value(item, name, self._file, self._faults) for item in self._node.value]

    def one_or_many(self) -> list[Value]:
        """A list's entries, of which there must be one, or a single value as a list of itself."""
        return self.items(some=True) if self.kind == "list" else [self]

    def _bad(self, blank: _T, code: str, message: str) -> _T:
        self.fault(code, f"{self.name} {message}")
        return blank

    def _scalar(self, want: str) -> str | None:
        if self.kind != "scalar":
            return self._bad(None, "wrong-kind", f"must be {want}, not a {self.kind}")
        text: str = self._node.value
        if not text and not scalars.quoted(self._node):
            return self._bad(None, "wrong-kind", f"must be {want}, but nothing stands here")
        return text

    def _digits(
        self, form: re.Pattern[str], cast: Callable[[str], _T], low: Any, high: Any, want: str
    ) -> _T:
        text = self._scalar(want)
        if text is None:
            return cast("0")
        if scalars.quoted(self._node) or not form.fullmatch(text):
            return self._bad(cast("0"), "wrong-kind", f"must be {want} in plain decimal digits")
        number: Any = cast(text)
        if not low <= number <= high:
            return self._bad(cast("0"), "bad-value", f"must be from {low} to {high}")
        return cast(text)


class Section:
    """A mapping whose keys are asked for one by one; `done()` reports the rest."""

    def __init__(
        self,
        values: dict[str, Value],
        name: str,
        position: Position,
        faults: Faults,
        *,
        keys: dict[str, Position] | None = None,
        quiet: bool = False,
    ) -> None:
        self._values = values
        self._keys = keys or {}
        self._faults = faults
        self._quiet = quiet
        self._asked: set[str] = set()
        self.name = name
        self.position = position

    @classmethod
    def of(cls, node: Any, file: str, faults: Faults, name: str = "the file") -> Section:
        """From a mapping node. Keys that `source` has refused are left out."""
        values: dict[str, Value] = {}
        keys: dict[str, Position] = {}
        for key, value in node.value:
            if key.tag == scalars.STRING_TAG and key.value not in values:
                values[key.value] = Value(value, key.value, file, faults)
                keys[key.value] = Position.of(file, key.start_mark)
        return cls(values, name, Position.of(file, node.start_mark), faults, keys=keys)

    @classmethod
    def unreadable(cls, file: str, faults: Faults) -> Section:
        """In place of a file that has been reported: empty, and nothing in it is missed."""
        return cls({}, "the file", Position(file, 1, 1), faults, quiet=True)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def empty(self) -> bool:
        return not self._values

    @property
    def readable(self) -> bool:
        """False when it stands in for what could not be read: then nothing in it is missed."""
        return not self._quiet

    def fault(self, code: str, message: str, at: str | Position | None = None) -> None:
        """Note a fault of the section, of the value of the key `at`, or of another place in it."""
        where = self.position_of(at) if isinstance(at, str) else at
        self._faults.add(where or self.position, code, message)

    def missing(self, key: str) -> None:
        """Report that a key is missing, unless the section itself could not be read."""
        if not self._quiet:
            self.fault("missing-key", f"{self.name} needs the key {key!r}")

    def position_of(self, key: str) -> Position:
        """Where the value of `key` stands; the section itself when it has no such key."""
        value = self._values.get(key)
        return value.position if value else self.position

    def find(self, key: str) -> Value | None:
        """The value of an optional key, whatever its kind."""
        self._asked.add(key)
        return self._values.get(key)

    def require(self, key: str) -> Value | None:
        """The value of a key that must be there, whatever its kind; None has been reported."""
        if key not in self._values:
            self.missing(key)
        return self.find(key)

    def exactly_one(self, *keys: str) -> str:
        """Which of `keys` is there; "" and a fault when none is, or several are."""
        self._asked.update(keys)
        present = [key for key in keys if key in self._values]
        if len(present) == 1:
            return present[0]
        if not self._quiet:
            self.fault("exactly-one", f"{self.name} needs exactly one of: {', '.join(keys)}")
        return ""

    def text(
        self,
        key: str,
        default: _D | Required = REQUIRED,
        *,
        pattern: re.Pattern[str] | None = None,
        want: str = "another form",
    ) -> str | _D:
        return self._read(key, default, "", lambda value: value.text(pattern, want))

    def choice(
        self, key: str, names: Collection[str], default: _D | Required = REQUIRED
    ) -> str | _D:
        return self._read(key, default, "", lambda value: value.choice(names))

    def integer(
        self,
        key: str,
        default: _D | Required = REQUIRED,
        *,
        low: int = 0,
        high: int = 2**31 - 1,
    ) -> int | _D:
        return self._read(key, default, 0, lambda value: value.integer(low, high))

    def number(
        self,
        key: str,
        default: _D | Required = REQUIRED,
        *,
        low: float = 0.0,
        high: float = 1e9,
    ) -> float | _D:
        return self._read(key, default, 0.0, lambda value: value.number(low, high))

    def flag(self, key: str, default: _D | Required = REQUIRED) -> bool | _D:
        return self._read(key, default, False, Value.flag)

    def texts(
        self,
        key: str,
        default: _D | Required = REQUIRED,
        *,
        some: bool = False,
        pattern: re.Pattern[str] | None = None,
        want: str = "another form",
    ) -> tuple[str, ...] | _D:
        """A list of texts; faulty ones are left out."""

        def read(value: Value) -> tuple[str, ...]:
            texts = (item.text(pattern, want) for item in value.items(some=some))
            return tuple(filter(None, texts))

        none: tuple[str, ...] = ()
        return self._read(key, default, none, read)

    def items(
        self, key: str, default: _D | Required = REQUIRED, *, some: bool = False
    ) -> list[Value] | _D:
        none: list[Value] = []
        return self._read(key, default, none, lambda value: value.items(some=some))

    def mapping(self, key: str, *, optional: bool = False) -> Section:
        """A section below. An optional one that is absent reads as all defaults."""
        empty = Section({}, key, self.position, self._faults, quiet=self._quiet or not optional)
        return self._read(key, empty if optional else REQUIRED, empty, Value.mapping)

    def entries(self) -> list[tuple[str, Position, Value]]:
        """Every key not asked for yet, with its position and value: names that the site chose."""
        rest = [key for key in self._values if key not in self._asked]
        self._asked.update(rest)
        for key in rest:
            # Such a key may be anything: messages name the section instead.
            self._values[key].name = f"an entry of {self.name}"
        return [(key, self._keys[key], self._values[key]) for key in rest]

    def done(self) -> None:
        """Report every key that nobody asked for."""
        for key in self._values:
            if key not in self._asked:
                self._faults.add(
                    self._keys[key],
                    "unknown-key",
                    f"this key is not known in {self.name}; {hint(key, self._asked)}",
                )

    def _read(
        self, key: str, default: _D | Required, blank: _T, read: Callable[[Value], _T]
    ) -> _T | _D:
        value = self.find(key)
        if value is not None:
            return read(value)
        if default is not REQUIRED:
            return default
        self.missing(key)
        return blank


class Unique:
    """Names of which each may be given once in a file, such as ids."""

    def __init__(self) -> None:
        self._first: dict[object, Position] = {}

    def check(self, section: Section, key: str, name: object) -> None:
        """Report `name`, the value of `key`, if it came before. "" has been reported."""
        if name in self._first:
            line = self._first[name].line
            section.fault("duplicate-id", f"{key} stands already on line {line}", key)
        elif name:
            self._first[name] = section.position_of(key)
