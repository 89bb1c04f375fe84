"""Old content under a new number: nothing but the number changes."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from conductor.activation.revision import renumbered
from conductor.errors import ConfigError

FILE = """\
# revision: 1 is not it, nor is é or 𝄞
apiVersion: conductor/v1\r
note: "revision: 3"
nested: {revision: 4}
revision:   42   # the number
text: |
  revision: 5
"""


@pytest.mark.parametrize("number", [1, 43, 2_147_483_647])
def test_only_the_number_at_the_top_changes(number: int) -> None:
    assert renumbered(FILE.encode(), number) == FILE.replace("42", str(number)).encode()


@pytest.mark.parametrize("text", ["{revision: 42, a: [1]}", '{"a": 1, "revision": 42}'])
def test_flow_style_is_read_too(text: str) -> None:
    assert renumbered(text.encode(), 7) == text.replace("42", "7").encode()


@pytest.mark.parametrize(
    "text", ["", "[revision]", "a: 1", "revision: [4]", "revision: x", "a: {revision: 1}", "a: ["]
)
def test_without_a_number_at_the_top_it_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        renumbered(text.encode(), 7)


@given(
    before=st.dictionaries(st.text("abcé𝄞 ", min_size=1), st.text("xyé𝄞:#\n")),
    after=st.dictionaries(st.text("defé𝄞 ", min_size=1), st.text("xyé𝄞:#\n")),
)
def test_whatever_stands_around_it_stays(before: dict[str, str], after: dict[str, str]) -> None:
    content = {**before, "revision": 42, **after}
    text = yaml.safe_dump(content, allow_unicode=True, sort_keys=False)
    changed = yaml.safe_load(renumbered(text.encode(), 4711))
    assert changed == {**content, "revision": 4711}
