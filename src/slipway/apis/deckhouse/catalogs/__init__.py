"""Catalogs of other clusters: the ModelCatalogSource, and the entry that fits a model. Pure."""
