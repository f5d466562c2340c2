"""The OpenAI-compatible gateway: HAProxy carries the traffic, this package tells it where.

table (pure) -> render (pure) -> files in the shared directory, and runtime (pure) -> commands on HAProxy's socket.
"""
