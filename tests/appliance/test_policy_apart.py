"""A site that another process read is the one that would have been read here."""

from __future__ import annotations

import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import pytest

from conductor.activation import apart
from conductor.activation.apart import read_apart
from conductor.config import Site
from conductor.errors import ConfigError
from support.appliedpolicies import policy_bytes, site_folder, site_under


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return site_under(site_folder(tmp_path), policy_bytes(1))


def test_it_is_the_same_site(site: Site) -> None:
    assert read_apart(site, policy_bytes(2)) == site.with_policy(policy_bytes(2))


def test_what_is_wrong_is_told_as_if_it_were_read_here(site: Site) -> None:
    with pytest.raises(ConfigError, match="unknown-key"):
        read_apart(site, policy_bytes(2, bogus=1))


@pytest.mark.parametrize(
    "error", [OSError(11, "no more processes"), subprocess.TimeoutExpired("x", 1)]
)
def test_without_a_process_it_is_read_here(
    site: Site, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def none(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(apart.subprocess, "run", none)
    assert read_apart(site, policy_bytes(2)) == site.with_policy(policy_bytes(2))


class Foreign:
    def __init__(self, made: Any) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return self.made


@pytest.mark.parametrize(
    "made",
    [(os.system, ("true",)), (getattr, (Site, "__init__")), (eval, ("1",)), (list, ()),
     (read_apart, (None, b""))],
)  # fmt: skip
def test_nothing_but_parts_of_a_site_is_taken_in(made: Any) -> None:
    """Neither other modules' names nor functions of our own. It is then read here."""
    assert apart.taken_in(pickle.dumps(Foreign(made))) is None


@pytest.mark.parametrize("data", [b"", b"\x80\x05", b"nonsense", pickle.dumps("no site")])
def test_what_is_no_site_is_taken_for_none(data: bytes) -> None:
    assert apart.taken_in(data) is None
