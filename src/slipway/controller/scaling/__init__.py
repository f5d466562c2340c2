"""Autoscaling of replicas by the number of requests."""
