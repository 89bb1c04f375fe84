from trtllm_stub.layers import Embedding

__all__ = ["Embedding"]
