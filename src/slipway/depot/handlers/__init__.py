"""Handlers of requests: tokens, uploads, catalogs, imports and the removal of leftovers."""
