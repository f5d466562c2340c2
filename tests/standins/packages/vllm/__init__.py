"""A stand-in of vLLM 0.10 under its own command."""
