"""Quantization: counts the weights in the tensors of a model. Pure."""
