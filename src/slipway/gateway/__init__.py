"""The OpenAI-compatible gateway: HAProxy carries the traffic, and this package configures HAProxy.

A source publishes a routing table. Pure functions render the table as files in the shared directory, and compare the
table with HAProxy's state to compute commands for HAProxy's socket (``runtime_diff``).
"""
