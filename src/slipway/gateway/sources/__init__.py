"""Sources of the routing table and the keys: the cluster, or a file."""
