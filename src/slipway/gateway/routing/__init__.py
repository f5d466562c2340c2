"""The routing table: model IDs, keys and endpoints, and which endpoints get no requests. Pure."""
