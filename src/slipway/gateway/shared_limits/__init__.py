"""Limits that all gateways keep together: what holders have used, and signed messages about it. Pure."""
