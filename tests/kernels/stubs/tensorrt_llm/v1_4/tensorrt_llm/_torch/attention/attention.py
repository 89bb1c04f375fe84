from trtllm_stub.layers import Attention

__all__ = ["Attention"]
