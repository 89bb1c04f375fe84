from trtllm_stub.layers import PositionEmbeddingType

__all__ = ["PositionEmbeddingType"]
