"""vLLM's OpenAI server."""
