"""Builders that turn a ModelServer into a Deployment, Services, policies, Jobs and groups of pods. Pure."""
