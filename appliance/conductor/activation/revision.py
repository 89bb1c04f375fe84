"""The `revision:` of a policy file, changed in place: every other byte stays as it was written.

Going back means to apply old content under a new number, since revisions only grow. The number is
found where the YAML reader puts the mark of its node, so that no comment, string or nested key that
looks like it can be mistaken for it.
"""

from __future__ import annotations

from typing import Any

import yaml

from conductor.errors import ConfigError, Fault

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def renumbered(policy: bytes, revision: int, file: str = "policy.yaml") -> bytes:
    """`policy` with another revision. It must be readable; raises `ConfigError` when it is not."""
    text = _text(policy, file)
    node = _revision_node(text, file)
    # Marks of both loaders count characters.
    return f"{text[: node.start_mark.index]}{revision}{text[node.end_mark.index :]}".encode()


def _text(policy: bytes, file: str) -> str:
    try:
        return policy.decode("utf-8")
    except UnicodeDecodeError:
        raise _fault(file, "bad-encoding", "not UTF-8") from None


def _revision_node(text: str, file: str) -> Any:
    try:
        root = yaml.compose(text, Loader=_LOADER)
    except yaml.YAMLError:
        raise _fault(file, "syntax", "no YAML: 'conductor policy lint' says where") from None
    entries = root.value if isinstance(root, yaml.MappingNode) else []
    found = [value for key, value in entries if key.value == "revision"]
    if len(found) != 1 or not isinstance(found[0], yaml.ScalarNode) or not found[0].value.isdigit():
        raise _fault(file, "missing-key", "needs one key 'revision' with a whole number")
    return found[0]


def _fault(file: str, code: str, message: str) -> ConfigError:
    return ConfigError([Fault(file, 1, 1, code, message)])
