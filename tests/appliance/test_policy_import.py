"""`conductor policy import-gitleaks`: what it prints can stand in a policy as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from conductor.cli.policyimport import import_gitleaks
from support.policies import read

RULES = r"""
[[rules]]
id = "acme-token"
regex = '''\b(acme_[a-z0-9]{12})\b'''
entropy = 3.0

[[rules]]
id = "odd quotes"
regex = '''key['"]? = ["'](q:[0-9]{4} # no comment)'''

[[rules]]
id = "two-lines"
regex = '''begin
end'''

[[rules]]
id = "look-ahead"
regex = '''x(?=y)'''
"""

BASE = """
apiVersion: conductor/v1
kind: RoutingPolicy
revision: 1
labels: {levels: [public, internal], compartments: [unscanned]}
default_label: internal
destinations: {box: {kind: local, clearance: {level: internal, compartments: all}}}
"""


def run(tmp_path: Path, text: str) -> Result:
    file = tmp_path / "gitleaks.toml"
    file.write_text(text)
    return CliRunner().invoke(import_gitleaks, [str(file)])


def test_what_is_printed_is_a_section_that_a_policy_can_hold(tmp_path: Path) -> None:
    result = run(tmp_path, RULES)
    assert result.exit_code == 0
    refused = [line.split(": ")[0] for line in result.stderr.splitlines()]
    assert refused == ["two-lines", "look-ahead", "2 taken over, 2 not"]
    policy = read(BASE + result.stdout)
    assert [(custom.id, custom.pattern, custom.min_entropy) for custom in policy.detectors] == [
        ("custom.gl-acme-token", r"\b(acme_[a-z0-9]{12})\b", 3.0),
        ("custom.gl-odd-quotes", "key['\"]? = [\"'](q:[0-9]{4} # no comment)", 0.0),
    ]


@pytest.mark.parametrize("text", ["", "[[rules]]\nid = 'a'\n", "[[rules]]\nregex = '(?=y)'\n"])
def test_when_nothing_can_be_taken_over_nothing_is_printed(tmp_path: Path, text: str) -> None:
    result = run(tmp_path, text)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "0 taken over" in result.stderr


def test_a_file_that_cannot_be_read_is_told_in_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(import_gitleaks, [str(tmp_path / "none.toml")])
    assert result.exit_code == 1
    assert "cannot be read" in result.stderr
    assert "Traceback" not in result.stderr
