"""Sources of weights: their URLs, their credentials, and catalogs of other clusters."""
