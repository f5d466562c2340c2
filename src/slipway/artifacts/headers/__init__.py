"""Headers of files with weights: GGUF and Safetensors. Pure."""
