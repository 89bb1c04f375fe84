from trtllm_stub.params import LogitsProcessor, SamplingParams

__all__ = ["LogitsProcessor", "SamplingParams"]
