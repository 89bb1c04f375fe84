"""The engine backend's own `LLM`."""

from typing import Any

from trtllm_stub import serving


class LLM(serving.LLM):
    """Of a built directory, whose sizes it takes from there."""

    def __init__(self, model: str, **kwargs: Any) -> None:
        for name in ("cuda_graph_config", "disable_overlap_scheduler"):
            assert name not in kwargs, "of the other backend"
        super().__init__(model, **kwargs)
