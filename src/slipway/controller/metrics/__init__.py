"""Metrics of the resources in the caches."""
