"""Autoscaling: replicas follow requests."""
