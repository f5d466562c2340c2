"""Builders: a ModelServer becomes a Deployment, Services, policies, Jobs and groups of pods. Pure."""
