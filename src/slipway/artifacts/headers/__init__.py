"""Headers of weight files: GGUF and Safetensors. Pure."""
