"""Quantization: how many weights the tensors of a model hold. Pure."""
