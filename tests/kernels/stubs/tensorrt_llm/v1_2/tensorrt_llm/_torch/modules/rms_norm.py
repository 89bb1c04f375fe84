from trtllm_stub.layers import RMSNorm

__all__ = ["RMSNorm"]
