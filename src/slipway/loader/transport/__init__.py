"""The interface of sources, and the parts that all sources share: connections, proxies, limits and the address
policy."""
