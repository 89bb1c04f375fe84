from trtllm_stub import serving
from trtllm_stub.params import SamplingParams


class LLM(serving.LLM):
    SHOWS_END = False


__version__ = "1.4.0rc4"
__all__ = ["LLM", "SamplingParams"]
