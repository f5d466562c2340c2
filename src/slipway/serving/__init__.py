"""The contract between the controller and the APIs, and builders of Kubernetes objects that depend on no API or
engine."""
