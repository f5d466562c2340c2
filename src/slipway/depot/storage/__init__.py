"""The cluster's models, and their uploads and artifacts in the registry."""
