"""Inputs of the controller: caches, gateways, catalogs of other clusters, and files in its container."""
