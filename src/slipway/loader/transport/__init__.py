"""The contract of a source, and what all sources share: connections, proxies, limits, address policy."""
