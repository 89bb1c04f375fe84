from trtllm_stub.layers import PositionalEmbeddingParams, RopeParams

__all__ = ["PositionalEmbeddingParams", "RopeParams"]
