"""Model files: selects the files of a source that make up a model, and checks that they are sound. Pure."""
