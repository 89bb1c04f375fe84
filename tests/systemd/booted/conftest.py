"""These run inside the guest that `tests/systemd/guest.sh` boots, file by file in order: each
stands on what those before it have done to the machine. What is marked `full` is left out by
`make test-system-core`, which is part of every run of continuous integration.
"""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: left out by make test-system-core")
