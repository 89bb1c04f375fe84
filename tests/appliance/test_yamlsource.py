"""The strict YAML reader: what it refuses, where, and that it never repeats what it read."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conductor.errors import ConfigError
from conductor.strictyaml import source as yamlsource
from conductor.strictyaml.faults import Faults, Position, hint
from conductor.strictyaml.source import MAX_BYTES, MAX_DEPTH, parse, read
from conductor.strictyaml.values import Section, Unique


@pytest.fixture(params=["libyaml", "pure"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both of PyYAML's loaders, since only one of them may be there."""
    chosen = yaml.CSafeLoader if request.param == "libyaml" else yaml.SafeLoader
    monkeypatch.setattr(yamlsource, "_LOADER", chosen)


def faults_of(text: str | bytes, ask: Any = None) -> list[str]:
    """Each fault as `line:col code`."""
    faults = Faults()
    root = parse(text if isinstance(text, bytes) else text.encode(), "f.yaml", faults)
    if ask is not None:
        ask(root)
        root.done()
    try:
        faults.raise_any()
    except ConfigError as error:
        return [f"{fault.line}:{fault.column} {fault.code}" for fault in error.faults]
    return []


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["1:1 wrong-kind"]),
        ("# only a comment\n", ["1:1 wrong-kind"]),
        ("- a\n- b\n", ["1:1 wrong-kind"]),
        ("  just text\n", ["1:3 wrong-kind"]),
        ("a: &x b\nc: *x\n", ["1:4 anchor", "2:4 anchor"]),
        ("a: *nowhere\n", ["1:4 anchor"]),
        ("%YAML 1.1\n---\na: b\n", ["1:1 directive"]),
        ("%TAG ! tag:x,2000:\n---\na: b\n", ["1:1 directive"]),
        ("a: !!str b\n", ["1:4 tag"]),
        ("a: ! b\n", ["1:4 tag"]),
        ("a: !!python/object/apply:os.system [x]\n", ["1:4 tag"]),
        ("a: b\n---\nc: d\n", ["2:1 second-document"]),
        ("a: b\n---\n", ["2:1 second-document"]),
        ("a: b\nc: d\na: e\n", ["3:1 duplicate-key"]),
        ("x: {a: 1, 'a': 2}\n", ["1:11 duplicate-key"]),
        ("x:\n- {a: 1, a: 2}\n", ["2:10 duplicate-key"]),
        ("a: b\n<<: {c: d}\n", ["2:1 merge-key"]),
        ("? [a, b]\n: c\n", ["1:3 wrong-kind"]),
        ("? {a: b}\n: c\n", ["1:3 wrong-kind"]),
        ("1: a\nno: b\n~: c\n2026-01-01: d\n", [f"{line}:1 quote-it" for line in range(1, 5)]),
        ("a: b\n\tc: d\n", ["2:1 bad-yaml"]),
        ("a: 'b\n", ["2:1 bad-yaml"]),
        ("a: @b\n", ["1:4 bad-yaml"]),
    ],
)
def test_what_no_schema_allows_is_refused_at_its_place(text: str, expected: list[str]) -> None:
    assert faults_of(text) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a: \xff\n", ["1:4 bad-encoding"]),
        (b"a: b\nc: d\xed\xa0\x80\n", ["2:5 bad-encoding"]),
        ("a: b".encode("utf-16"), ["1:1 bad-encoding"]),
        (b"a: b\r\nc: \x00\r\n", ["2:4 hidden-character"]),
        (b"\xef\xbb\xbfa: b\n", ["1:1 hidden-character"]),
        ("a: b # \u202e deny\n".encode(), ["1:8 hidden-character"]),
        ("a: b\u2028c: d\n".encode(), ["1:5 hidden-character"]),
        ("a: b\U000e0041\n".encode(), ["1:5 hidden-character"]),
        (b"a: " + b"x" * MAX_BYTES, ["1:1 too-large"]),
    ],
)
def test_bytes_that_are_no_honest_text_are_refused(data: bytes, expected: list[str]) -> None:
    assert faults_of(data) == expected


@pytest.mark.usefixtures("loader")
def test_nesting_is_bounded_before_anything_recurses() -> None:
    def nested(levels: int) -> str:
        return "a: " + "[" * (levels - 1) + "]" * (levels - 1)

    assert faults_of(nested(MAX_DEPTH)) == []
    assert faults_of(nested(MAX_DEPTH + 1)) == [f"1:{MAX_DEPTH + 3} too-deep"]
    assert len(faults_of("a: " + "[" * 100_000)) == 1
    assert len(faults_of("\n".join(" " * i + "a:" for i in range(500)))) == 1


@pytest.mark.usefixtures("loader")
def test_an_entity_bomb_is_refused_without_being_expanded() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    assert {fault.split()[1] for fault in faults_of("\n".join(lines))} == {"anchor"}


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize("escape", ["\\UFFFFFFFF", "\\ud800", "\\0", "\\u202e", "\\n"])
def test_escapes_cannot_write_what_a_file_may_not_hold(escape: str) -> None:
    assert len(faults_of(f'a: "x{escape}"\n', lambda root: root.text("a"))) == 1


@pytest.mark.usefixtures("loader")
@pytest.mark.parametrize(
    "plain",
    [
        "NO",
        "on",
        "Off",
        "y",
        "N",
        "true",
        "~",
        "null",
        "12:30",
        "1.10",
        "010",
        "0x1f",
        "0b1",
        "1_000",
        "2026-01-01",
        "1e3",
        ".5",
        ".inf",
        "0o7",
        "=",
        "-1",
    ],
)
def test_a_plain_scalar_that_any_yaml_reads_as_no_string_must_be_quoted(plain: str) -> None:
    assert faults_of(f"a: {plain}\n", lambda root: root.text("a")) == ["1:4 quote-it"]
    for quoted in (f"'{plain}'", f'"{plain}"'):
        assert parse(f"a: {quoted}".encode(), "f", Faults()).text("a") == plain


@pytest.mark.parametrize("good", ["yes-man", "12a", "v1.10.2", "env:NAME", "127.0.0.1:80", "a b"])
def test_other_plain_text_needs_no_quotes(good: str) -> None:
    assert faults_of(f"a: {good}\n", lambda root: root.text("a")) == []


def all_kinds(root: Section) -> None:
    root.text("text")
    root.integer("integer", low=1, high=10)
    root.number("number", high=1.0)
    root.flag("flag")
    root.choice("choice", ["red", "green"])
    root.texts("texts")
    root.mapping("mapping").done()


GOOD = """\
text: a
integer: 7
number: 0.5
flag: true
choice: red
texts: [a, b]
mapping: {}
"""


def test_a_file_of_every_kind_is_read_without_a_fault() -> None:
    assert faults_of(GOOD, all_kinds) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("text: a", "text: [a]", "1:7 wrong-kind"),
        ("text: a", "text:", "1:6 wrong-kind"),
        ("text: a", "text: ''", "1:7 bad-value"),
        ("text: a", "text: |\n  a\n  b", "1:7 bad-value"),
        ("integer: 7", "integer: 007", "2:10 wrong-kind"),
        ("integer: 7", "integer: '7'", "2:10 wrong-kind"),
        ("integer: 7", "integer: 7.0", "2:10 wrong-kind"),
        ("integer: 7", "integer: +7", "2:10 wrong-kind"),
        ("integer: 7", "integer: 1_0", "2:10 wrong-kind"),
        ("integer: 7", "integer: \u0667", "2:10 wrong-kind"),
        ("integer: 7", "integer: 0", "2:10 bad-value"),
        ("integer: 7", "integer: 11", "2:10 bad-value"),
        ("integer: 7", "integer: " + "9" * 5000, "2:10 wrong-kind"),
        ("number: 0.5", "number: 1e-3", "3:9 wrong-kind"),
        ("number: 0.5", "number: .nan", "3:9 wrong-kind"),
        ("number: 0.5", "number: -0.5", "3:9 wrong-kind"),
        ("number: 0.5", "number: 1.5", "3:9 bad-value"),
        ("flag: true", "flag: yes", "4:7 wrong-kind"),
        ("flag: true", "flag: True", "4:7 wrong-kind"),
        ("flag: true", "flag: 'true'", "4:7 wrong-kind"),
        ("choice: red", "choice: rde", "5:9 bad-value"),
        ("texts: [a, b]", "texts: a", "6:8 wrong-kind"),
        ("texts: [a, b]", "texts: [a, no]", "6:12 quote-it"),
        ("mapping: {}", "mapping: []", "7:10 wrong-kind"),
        ("mapping: {}", "mapping:", "7:9 wrong-kind"),
        ("mapping: {}", "mapping: {x: 1}", "7:11 unknown-key"),
        ("mapping: {}", "", "1:1 missing-key"),
        ("flag: true", "flag: true\nflga: true", "5:1 unknown-key"),
    ],
)
def test_one_wrong_value_gives_one_fault_at_its_place(old: str, new: str, expected: str) -> None:
    assert old in GOOD
    assert faults_of(GOOD.replace(old, new), all_kinds) == [expected]


def test_all_faults_come_at_once_and_in_file_order() -> None:
    text = "text: no\ninteger: x\nnumber: y\nflag: z\nchoice: w\ntexts: v\nmapping: u\nmore: t\n"
    found = faults_of(text, all_kinds)
    assert [fault.split(":")[0] for fault in found] == [str(line) for line in range(1, 9)]


def test_a_duplicate_key_does_not_hide_the_other_faults() -> None:
    found = faults_of("text: a\n" + GOOD.replace("red", "blue"), all_kinds)
    assert found == ["2:1 duplicate-key", "6:9 bad-value"]


def test_an_unknown_key_is_answered_with_the_nearest_known_one() -> None:
    faults = Faults()
    root = parse(b"api: {prot: 80}\n", "f.yaml", faults)
    api = root.mapping("api")
    api.integer("port", 8080)
    api.text("host", "x")
    api.done()
    with pytest.raises(ConfigError, match=r"f.yaml:1:7: unknown-key: .* did you mean 'port'"):
        faults.raise_any()


def test_a_hint_without_a_near_name_lists_what_is_known() -> None:
    assert hint("zzz", ["red", "green"]) == "known: green, red"
    assert hint("zzz", []) == "known: none"
    assert hint("zzz", map(str, range(99))).endswith(", ...")


SECRET = "AKIAIOSFODNN7EXAMPLE"


@pytest.mark.parametrize("form", ["{k: %s}", "[%s, 1]", "%s", "'%s\\0'", "!%s x", "&%s x", "*%s"])
def test_no_message_repeats_what_stands_in_the_file(form: str) -> None:
    """A secret may have been pasted anywhere, as a value or as a key."""
    keys = ["text", "integer", "number", "flag", "choice", "texts", "mapping"]
    for value in (form % SECRET, form % f'"{SECRET}\\q"'):
        text = "\n".join(f"{name}: {value}" for name in keys) + f"\n{SECRET}: 1\n{SECRET}: 2\n"
        faults = Faults()
        all_kinds(root := parse(text.encode(), "f.yaml", faults))
        root.done()
        with pytest.raises(ConfigError) as caught:
            faults.raise_any()
        assert SECRET not in str(caught.value) + repr(caught.value)


def test_keys_that_a_site_chooses_come_with_their_positions() -> None:
    faults = Faults()
    root = parse(b"known: a\nfirst: {x: 1}\nsecond: b\n", "f.yaml", faults)
    assert root.text("known") == "a"
    entries = [(key, str(position), value.kind) for key, position, value in root.entries()]
    assert entries == [("first", "f.yaml:2:1", "mapping"), ("second", "f.yaml:3:1", "scalar")]
    root.done()
    faults.raise_any()


def test_what_is_given_once_only_is_told_when_it_comes_again() -> None:
    faults = Faults()
    ids = Unique()
    for item in parse(b"l: [{id: a}, {id: b}, {id: a}]\n", "f.yaml", faults).items("l"):
        section = item.mapping()
        ids.check(section, "id", section.text("id"))
    with pytest.raises(ConfigError, match=r"f.yaml:1:28: duplicate-id"):
        faults.raise_any()


def test_a_faulty_value_reads_as_harmless_so_that_the_walk_goes_on() -> None:
    root = parse(b"a: [x]\n", "f.yaml", Faults())
    assert (root.text("a"), root.integer("a"), root.flag("a"), root.choice("a", ["x"])) == (
        ("", 0, False, "")
    )
    section = root.mapping("a")
    assert section.text("deeper") == ""
    assert section.mapping("still").items("deeper") == []


def test_a_file_that_is_not_there_or_no_file_is_a_fault(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent.yaml", tmp_path, tmp_path / "pipe"):
        faults = Faults()
        document = read(path, faults)
        document.root.text("anything")
        with pytest.raises(ConfigError) as caught:
            faults.raise_any()
        assert [fault.code for fault in caught.value.faults] == ["unreadable"]


def test_a_document_carries_the_hash_of_its_exact_bytes(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"a: b\n")
    document = read(tmp_path / "f.yaml", Faults())
    assert document.sha256 == hashlib.sha256(b"a: b\n").hexdigest()
    assert str(document.root.position) == f"{tmp_path}/f.yaml:1:1"


@given(st.text(max_size=200) | st.text("&*!%:-[]{}?|>'\"#, \nab", max_size=60))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    for pure in (yaml.CSafeLoader, yaml.SafeLoader):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(yamlsource, "_LOADER", pure)
            faults_of(data, all_kinds)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused_and_never_crash(data: bytes) -> None:
    faults_of(data, all_kinds)


def test_positions_print_as_editors_read_them() -> None:
    assert str(Position("a/b.yaml", 3, 9)) == "a/b.yaml:3:9"
