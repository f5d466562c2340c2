"""Sources of the routing table and of the API keys: the cluster, or a file."""
