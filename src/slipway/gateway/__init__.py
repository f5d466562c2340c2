"""The OpenAI-compatible gateway: HAProxy carries the traffic, this package tells it where.

source -> table (pure) -> render (pure) -> files in the shared directory, and runtime_diff (pure) -> commands for
HAProxy's socket.
"""
