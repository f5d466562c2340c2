"""Sources of weights: their addresses, their credentials, and catalogs of other clusters."""
