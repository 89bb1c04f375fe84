"""Rules in the TOML form of gitleaks, as detectors that a policy can list.

Taken over are a rule's id, pattern, secret group and entropy. Left out: keywords, which only save
time there; paths, since a request has none; allow lists, so that more is found rather than less.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from typing import Any

from conductor.detect.custom import custom_fault
from conductor.errors import ConfigError, Fault

_NOT_IN_ID = re.compile(r"[^a-z0-9]+")
_LONGEST_ID = 55


@dataclass(frozen=True)
class Imported:
    """What came out of a file: entries for a policy's `detectors`, and why others did not."""

    detectors: tuple[dict[str, Any], ...]
    refused: tuple[tuple[str, str], ...]
    """Rule id and reason."""


def import_rules(text: str, file: str = "gitleaks.toml") -> Imported:
    """Read a gitleaks configuration. Raises `ConfigError` for what is no TOML of that form."""
    try:
        rules = tomllib.loads(text).get("rules", [])
    except tomllib.TOMLDecodeError as error:
        raise _fault(file, f"not TOML: {error}") from None
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise _fault(file, "'rules' must be a list of tables: write [[rules]]")
    taken: list[dict[str, Any]] = []
    refused: list[tuple[str, str]] = []
    for number, rule in enumerate(rules):
        name = str(rule.get("id", f"rule {number + 1}"))
        if fault := _take(rule, name, taken):
            refused.append((name, fault))
    return Imported(tuple(taken), tuple(refused))


def _fault(file: str, message: str) -> ConfigError:
    return ConfigError([Fault(file, 1, 1, "bad-import", message)])


def _take(rule: dict[str, Any], name: str, taken: list[dict[str, Any]]) -> str | None:
    """Add a rule to those taken over, or say why it cannot be."""
    pattern = rule.get("regex")
    if not isinstance(pattern, str) or not pattern:
        return "it has no regex"
    if not pattern.isprintable():
        return "its regex is not one line of visible text, which a policy's must be"
    group, entropy = rule.get("secretGroup", 0), rule.get("entropy", 0.0)
    if type(group) is not int or not isinstance(entropy, int | float) or not 0 <= entropy <= 8:
        return "its secretGroup must be an integer and its entropy a number up to 8"
    pattern = _with_one_group(pattern, group)
    if fault := custom_fault(pattern):
        return fault
    ident = "custom.gl-" + _NOT_IN_ID.sub("-", name.lower()).strip("-")
    entry: dict[str, Any] = {"id": ident[:_LONGEST_ID], "pattern": pattern, "likelihood": "likely"}
    if any(other["id"] == entry["id"] for other in taken):
        return "another rule has the same id"
    taken.append(entry | ({"min_entropy": float(entropy)} if entropy else {}))
    return None


def _with_one_group(pattern: str, group: int) -> str:
    """The pattern with `group` as its only group; 0: the only one it has, else none."""
    opens = _groups(pattern)
    if not group and len(opens) == 1:
        group = 1
    pieces, position = [], 0
    for number, (start, end) in enumerate(opens, 1):
        pieces += [pattern[position:start], "(" if number == group else "(?:"]
        position = end
    return "".join(pieces) + pattern[position:]


def _groups(pattern: str) -> list[tuple[int, int]]:
    """Where capturing groups open: the span of `(` or of `(?P<name>`."""
    token = re.compile(r"\\.|\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]|\(\?P?<\w+>|\((?!\?)", re.DOTALL)
    return [match.span() for match in token.finditer(pattern) if match[0].startswith("(")]
