"""Which files of a source make up a model, and whether they are sound. Pure."""
