"""vLLM's programs."""
