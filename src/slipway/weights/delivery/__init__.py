"""Models on claims and in images, which workloads of other owners mount. Pure."""
