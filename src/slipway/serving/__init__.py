"""Serving: the contract between controller and APIs, and builders of Kubernetes objects, without APIs and engines."""
