"""Limits that all gateways enforce together: counts of each holder's use, and signed messages about them. Pure."""
