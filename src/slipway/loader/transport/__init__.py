"""The contract of a source, and the common parts of all sources: connections, proxies, limits, address policy."""
