"""Limits that all gateways enforce together: the counts of used requests and tokens, and signed messages with the
counts. Pure."""
