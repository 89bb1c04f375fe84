"""A small valid site in a directory, with overrides. Files are JSON, which is YAML too.

site = small_site(tmp_path, workers=[local_worker("a", port=8001), remote_worker("b", url)],
                  appliance={"api": {"port": 0}})
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conductor.config import Site, load

Tree = dict[str, Any]

KEY = "test-key-of-app"
TRUSTED_KEY = "test-key-of-trusted-app"
CARD: Tree = {"skill": {"general": 0.8}, "output_tokens_per_s": 50, "source": "declared"}
CLASSIFY: dict[str, Tree] = {
    "secret.aws": {"level": "restricted", "compartments": ["secret"]},
    "secret.private_key": {"level": "restricted", "compartments": ["secret"]},
    "secret.token": {"level": "restricted", "compartments": ["secret"]},
    "secret.generic": {"level": "restricted", "compartments": ["secret"]},
    "iban": {"level": "confidential", "compartments": ["pii", "payment"]},
    "payment_card": {"level": "confidential", "compartments": ["pii", "payment"]},
    "email": {"compartments": ["pii"]},
    "phone": {"compartments": ["pii"]},
    "id": {"level": "confidential", "compartments": ["pii"]},
    "ip": {"level": "internal"},
    "marking": {"level": "confidential"},
}
NAMES: dict[str, Tree] = {name: {"compartments": ["pii"]} for name in ("person", "address")}
"""They take a model, so that only tests of names ask for them."""


def appliance_tree(directory: Path) -> Tree:
    """Connected, free ports, everything below `directory`, two keys (`KEY`, `TRUSTED_KEY`)."""
    return {
        "mode": "connected",
        "paths": {"root": str(directory), "state": "s", "run": "r", "models": "m", "audit": "a"},
        "api": {"port": 0, "admin_port": 0},
        "keys": [
            {"id": "app", "secret": "file:app.key"},
            {"id": "trusted-app", "secret": "file:trusted-app.key", "declare_labels": True},
        ],
    }


def policy_tree(*, names: bool = False) -> Tree:
    """One local and one remote destination; remote gets up to `internal`, no compartments."""
    found = CLASSIFY | (NAMES if names else {})
    return {
        "apiVersion": "conductor/v1",
        "kind": "RoutingPolicy",
        "revision": 1,
        "labels": {
            "levels": ["public", "internal", "confidential", "restricted"],
            "compartments": ["pii", "secret", "payment", "unscanned"],
        },
        "default_label": "internal",
        "destinations": {
            "box": {"kind": "local", "clearance": {"level": "restricted", "compartments": "all"}},
            "frontier": {
                "kind": "remote",
                "vendor": "simulated",
                "region": "us",
                "clearance": {"level": "internal", "compartments": []},
            },
        },
        "classify": [
            {"id": detector.replace(".", "-").replace("_", "-"), "when": {"detector": detector}}
            | {"raise": raised}
            for detector, raised in found.items()
        ],
        "guardrails": [
            {
                "id": "no-secret-remote",
                "deny": {"to": {"kind": "remote"}, "if": {"compartments_any": ["secret"]}},
            }
        ],
        "rules": [
            {
                "id": "ordinary-work-may-go-out",
                "allow": {"to": {"kind": "remote"}, "if": {"level_at_most": "internal"}},
            }
        ],
    }


def local_worker(
    name: str, *, port: int | None = None, unix: Path | str | None = None, **more: Any
) -> Tree:
    """A worker on this machine, behind a loopback port or a Unix socket."""
    way: Tree = {"unix": str(unix)} if port is None else {"tcp": f"127.0.0.1:{port}"}
    return {"id": name, "destination": "box", "model": name, **way, "card": CARD, **more}


def remote_worker(name: str, base_url: str = "http://127.0.0.1:9/v1", **more: Any) -> Tree:
    """A worker at the simulated vendor; its key is `env:SIMULATED_VENDOR_KEY`."""
    way = {"provider": "openai", "base_url": base_url, "key": "env:SIMULATED_VENDOR_KEY"}
    price = {"input_usd_per_mtok": 1.0, "output_usd_per_mtok": 4.0}
    worker: Tree = {"id": name, "destination": "frontier", "model": name, "remote": way}
    return {**worker, "card": CARD, "price": price, **more}


def overridden(tree: Tree, changes: Tree) -> Tree:
    """`tree` with `changes` merged in, mapping by mapping; a change to None removes the key."""
    result = dict(tree)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = overridden(result[key], value)
        else:
            result[key] = value
    return result


def write_site(
    directory: Path,
    *,
    appliance: Tree | None = None,
    policy: Tree | None = None,
    workers: Sequence[Tree] | None = None,
) -> Path:
    """Write the three files and the key files; returns the directory, for `config.load`."""
    pool = [local_worker("local-a", port=9)] if workers is None else list(workers)
    trees = {
        "appliance": overridden(appliance_tree(directory), appliance or {}),
        "policy": overridden(policy_tree(), policy or {}),
        "workers": {"workers": pool},
    }
    for name, tree in trees.items():
        (directory / f"{name}.yaml").write_text(json.dumps(tree, indent=1))
    for name, text in (("app", KEY), ("trusted-app", TRUSTED_KEY)):
        path = directory / f"{name}.key"
        path.write_text(text + "\n")
        path.chmod(0o600)
    return directory


def small_site(directory: Path, **overrides: Any) -> Site:
    """`write_site`, loaded."""
    return load(write_site(directory, **overrides))
