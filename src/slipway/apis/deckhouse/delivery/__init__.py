"""Delivery of models into workloads of other owners. Pure."""
