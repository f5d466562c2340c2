"""Request handlers: tokens, uploads, the catalog, imports and sweeps."""
