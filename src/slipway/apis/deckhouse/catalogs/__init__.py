"""Model catalogs of other clusters: the ModelCatalogSource, and the choice of an entry for a model. Pure."""
