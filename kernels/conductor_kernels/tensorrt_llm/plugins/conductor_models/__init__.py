"""For `trtllm-serve` and `trtllm-bench --custom_module_dirs`: importing it makes our models known.

The one module here that does something as it is imported, because that is how those programs ask.
"""

from conductor_kernels.tensorrt_llm.models import register_now

register_now()
