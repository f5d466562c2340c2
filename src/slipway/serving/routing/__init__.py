"""Which Service serves a model ID, and how many replicas its requests need. Pure."""
