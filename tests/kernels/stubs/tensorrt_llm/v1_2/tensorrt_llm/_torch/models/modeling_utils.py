from trtllm_stub.modelling import DecoderModel, DecoderModelForCausalLM, register_auto_model

__all__ = ["DecoderModel", "DecoderModelForCausalLM", "register_auto_model"]
