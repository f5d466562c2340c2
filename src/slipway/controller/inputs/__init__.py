"""Inputs of the controller: caches, gateways, catalogs of other clusters, and its own files."""
