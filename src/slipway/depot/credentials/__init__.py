"""The keys of the depot and the registry: certificates and signed tokens."""
