"""Keys of depot and registry: certificates and signed tokens."""
