"""Kernels in Triton's interpreter: a process of their own, since it changes Triton for good.

`TRITON_INTERPRET=1 pytest tests/kernels/interpreted`, done by `make test`.
"""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
