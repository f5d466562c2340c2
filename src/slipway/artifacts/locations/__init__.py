"""Where weights are: what an address names, and which addresses may be used and shown. Pure."""
