"""Models of the cluster, and their pieces and artifacts in the registry."""
