"""The OpenAI-compatible gateway: HAProxy carries the traffic, and this package configures HAProxy.

The stages are: source -> routing table (pure) -> rendered files (pure) in the shared directory, and runtime_diff (pure)
-> commands for HAProxy's socket.
"""
