from trtllm_stub.params import SamplingParams
from trtllm_stub.serving import LLM

__version__ = "1.2.1"
__all__ = ["LLM", "SamplingParams"]
