"""Metrics of the resources in the controller's caches."""
