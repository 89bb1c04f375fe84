from trtllm_stub.params import CudaGraphConfig, KvCacheConfig
from trtllm_stub.serving import RequestOutput

__all__ = ["CudaGraphConfig", "KvCacheConfig", "RequestOutput"]
