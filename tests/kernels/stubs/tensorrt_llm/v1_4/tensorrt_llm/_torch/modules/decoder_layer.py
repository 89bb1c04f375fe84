from trtllm_stub.layers import DecoderLayer

__all__ = ["DecoderLayer"]
