"""Weights: their sources, their places on nodes and claims, and the Jobs that load them. Pure, and shared by the
APIs."""
